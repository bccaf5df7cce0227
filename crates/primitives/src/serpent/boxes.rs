//! The eight S-boxes and their inverses as gates, for any vector type.
//!
//! An S-box takes four bits to four; with bit i of every lane in word i, gates on words do 32 of them in each lane at a time, and
//! no address depends on a secret. A search for short programs found the gates: it made the cheapest output of what was there
//! already, again and again, in random order. Vector instructions of three operands do two or three of them at once; compilers see
//! where.

/// Writes the S-boxes. A back end must have in scope: `type Vector`, `and`, `or`, `xor`, `not`, and `and_not(a, b)`, which is a
/// without the bits of b.
macro_rules! boxes {
    ($(#[$feature:meta])*) => {
        /// S-box 0: 17 gates.
        $(#[$feature])*
        #[inline]
        fn s0([a, b, c, d]: State) -> State {
            let t0 = or(d, a);
            let t1 = xor(b, t0);
            let t2 = xor(c, t1);
            let t3 = xor(a, c);
            let t4 = and_not(b, t3);
            let t5 = or(t1, t4);
            let t6 = xor(d, t2);
            let t7 = and(a, t6);
            let t8 = and_not(t5, t7);
            let t9 = not(t3);
            let t10 = or(t6, t9);
            let t11 = xor(t8, t10);
            let t12 = xor(t1, t11);
            let t13 = and(t6, t12);
            let t14 = and(t5, t10);
            let t15 = not(t14);
            let t16 = xor(t13, t15);
            [t16, t12, t8, t2]
        }

        /// S-box 1: 17 gates.
        $(#[$feature])*
        #[inline]
        fn s1([a, b, c, d]: State) -> State {
            let t0 = and_not(b, a);
            let t1 = not(d);
            let t2 = xor(c, t1);
            let t3 = xor(t0, t2);
            let t4 = and(c, a);
            let t5 = or(t3, t4);
            let t6 = and(d, t3);
            let t7 = and_not(b, t6);
            let t8 = xor(a, t7);
            let t9 = xor(t5, t8);
            let t10 = or(t6, t4);
            let t11 = or(t9, t1);
            let t12 = xor(b, t11);
            let t13 = xor(t10, t12);
            let t14 = xor(d, t3);
            let t15 = and_not(t13, t9);
            let t16 = xor(t14, t15);
            [t16, t9, t3, t13]
        }

        /// S-box 2: 16 gates.
        $(#[$feature])*
        #[inline]
        fn s2([a, b, c, d]: State) -> State {
            let t0 = and_not(c, a);
            let t1 = xor(b, d);
            let t2 = xor(t0, t1);
            let t3 = xor(c, t2);
            let t4 = and(b, t3);
            let t5 = not(a);
            let t6 = xor(c, t5);
            let t7 = xor(t4, t6);
            let t8 = or(t4, d);
            let t9 = or(t6, t2);
            let t10 = and(t8, t9);
            let t11 = xor(a, t10);
            let t12 = xor(b, t11);
            let t13 = and_not(t5, d);
            let t14 = xor(t7, t13);
            let t15 = xor(t12, t14);
            [t2, t15, t11, t7]
        }

        /// S-box 3: 16 gates.
        $(#[$feature])*
        #[inline]
        fn s3([a, b, c, d]: State) -> State {
            let t0 = and_not(d, c);
            let t1 = or(a, t0);
            let t2 = and_not(c, d);
            let t3 = and_not(b, t2);
            let t4 = xor(t1, t3);
            let t5 = xor(t1, c);
            let t6 = xor(t4, a);
            let t7 = and_not(t5, t6);
            let t8 = xor(d, t7);
            let t9 = xor(t5, b);
            let t10 = and_not(a, t8);
            let t11 = xor(t9, t10);
            let t12 = xor(t11, t8);
            let t13 = and_not(t4, d);
            let t14 = xor(t3, t13);
            let t15 = xor(t12, t14);
            [t4, t15, t8, t11]
        }

        /// S-box 4: 16 gates.
        $(#[$feature])*
        #[inline]
        fn s4([a, b, c, d]: State) -> State {
            let t0 = xor(d, a);
            let t1 = and_not(d, a);
            let t2 = xor(c, t1);
            let t3 = or(b, t2);
            let t4 = xor(t0, t3);
            let t5 = not(t2);
            let t6 = and(b, t4);
            let t7 = xor(t5, t6);
            let t8 = xor(b, t2);
            let t9 = or(c, t4);
            let t10 = and_not(t9, d);
            let t11 = xor(t8, t10);
            let t12 = and_not(t8, t6);
            let t13 = and(t7, d);
            let t14 = xor(t0, t13);
            let t15 = xor(t12, t14);
            [t7, t11, t15, t4]
        }

        /// S-box 5: 16 gates.
        $(#[$feature])*
        #[inline]
        fn s5([a, b, c, d]: State) -> State {
            let t0 = and(d, b);
            let t1 = xor(t0, c);
            let t2 = not(b);
            let t3 = xor(d, t2);
            let t4 = or(a, t3);
            let t5 = xor(t1, t4);
            let t6 = and_not(t5, d);
            let t7 = xor(a, b);
            let t8 = xor(t6, t7);
            let t9 = and_not(t8, t6);
            let t10 = or(t5, t3);
            let t11 = xor(b, t10);
            let t12 = xor(t9, t11);
            let t13 = and_not(t8, t11);
            let t14 = xor(t5, a);
            let t15 = xor(t13, t14);
            [t5, t8, t12, t15]
        }

        /// S-box 6: 17 gates.
        $(#[$feature])*
        #[inline]
        fn s6([a, b, c, d]: State) -> State {
            let t0 = not(b);
            let t1 = and(a, d);
            let t2 = xor(c, t1);
            let t3 = xor(t0, t2);
            let t4 = xor(b, d);
            let t5 = and_not(t4, a);
            let t6 = or(t2, t5);
            let t7 = xor(t3, a);
            let t8 = and_not(t7, d);
            let t9 = and_not(t6, t8);
            let t10 = xor(t4, a);
            let t11 = and(t9, t10);
            let t12 = xor(t8, t11);
            let t13 = xor(t3, d);
            let t14 = or(a, t13);
            let t15 = xor(t11, t10);
            let t16 = and_not(t14, t15);
            [t16, t3, t12, t9]
        }

        /// S-box 7: 18 gates.
        $(#[$feature])*
        #[inline]
        fn s7([a, b, c, d]: State) -> State {
            let t0 = xor(b, c);
            let t1 = and_not(c, b);
            let t2 = xor(d, t1);
            let t3 = and_not(a, t2);
            let t4 = xor(t0, t3);
            let t5 = and_not(t4, c);
            let t6 = or(t2, t5);
            let t7 = and(t0, a);
            let t8 = and_not(t6, t7);
            let t9 = and(t8, t2);
            let t10 = and_not(a, t4);
            let t11 = xor(b, t10);
            let t12 = xor(t9, t11);
            let t13 = or(b, t2);
            let t14 = and_not(t13, t4);
            let t15 = not(t2);
            let t16 = or(t10, t15);
            let t17 = xor(t14, t16);
            [t17, t12, t8, t4]
        }

        /// Inverse of S-box 0: 16 gates.
        $(#[$feature])*
        #[inline]
        fn inverse_s0([a, b, c, d]: State) -> State {
            let t0 = xor(d, c);
            let t1 = not(a);
            let t2 = and_not(t1, b);
            let t3 = xor(t0, t2);
            let t4 = and(c, b);
            let t5 = xor(t3, t4);
            let t6 = xor(a, b);
            let t7 = and_not(d, t3);
            let t8 = or(t6, t7);
            let t9 = xor(t5, t8);
            let t10 = and(d, t8);
            let t11 = xor(t1, t4);
            let t12 = xor(t10, t11);
            let t13 = or(t12, t9);
            let t14 = xor(d, t13);
            let t15 = xor(t3, t14);
            [t9, t15, t3, t12]
        }

        /// Inverse of S-box 1: 17 gates.
        $(#[$feature])*
        #[inline]
        fn inverse_s1([a, b, c, d]: State) -> State {
            let t0 = and_not(d, b);
            let t1 = xor(c, t0);
            let t2 = xor(a, t1);
            let t3 = xor(t1, b);
            let t4 = xor(t2, d);
            let t5 = and_not(b, t4);
            let t6 = or(t3, t5);
            let t7 = and(d, a);
            let t8 = and_not(t6, t7);
            let t9 = not(t5);
            let t10 = and_not(a, t8);
            let t11 = xor(t0, t10);
            let t12 = and_not(t9, t11);
            let t13 = and_not(a, t0);
            let t14 = xor(t9, t13);
            let t15 = and_not(t1, t8);
            let t16 = and_not(t14, t15);
            [t16, t8, t12, t2]
        }

        /// Inverse of S-box 2: 16 gates.
        $(#[$feature])*
        #[inline]
        fn inverse_s2([a, b, c, d]: State) -> State {
            let t0 = and(b, d);
            let t1 = or(b, c);
            let t2 = xor(a, t1);
            let t3 = xor(t0, t2);
            let t4 = and_not(d, t3);
            let t5 = and_not(c, t4);
            let t6 = or(b, d);
            let t7 = and(t2, t6);
            let t8 = xor(t5, t7);
            let t9 = and(d, c);
            let t10 = xor(t6, t9);
            let t11 = xor(a, t8);
            let t12 = not(t11);
            let t13 = xor(t10, t12);
            let t14 = and_not(t13, t3);
            let t15 = xor(t11, t14);
            [t3, t8, t13, t15]
        }

        /// Inverse of S-box 3: 16 gates.
        $(#[$feature])*
        #[inline]
        fn inverse_s3([a, b, c, d]: State) -> State {
            let t0 = and_not(b, c);
            let t1 = xor(t0, a);
            let t2 = or(d, t1);
            let t3 = xor(c, t2);
            let t4 = xor(b, t3);
            let t5 = and_not(t4, t2);
            let t6 = xor(d, t1);
            let t7 = xor(t3, t6);
            let t8 = xor(t5, t7);
            let t9 = and(t4, d);
            let t10 = and_not(t4, t8);
            let t11 = or(t1, t10);
            let t12 = xor(t9, t11);
            let t13 = xor(t7, t9);
            let t14 = and(t11, t13);
            let t15 = xor(b, t14);
            [t4, t15, t8, t12]
        }

        /// Inverse of S-box 4: 16 gates.
        $(#[$feature])*
        #[inline]
        fn inverse_s4([a, b, c, d]: State) -> State {
            let t0 = and_not(a, c);
            let t1 = or(d, t0);
            let t2 = and_not(a, b);
            let t3 = xor(c, t2);
            let t4 = xor(t1, t3);
            let t5 = xor(b, a);
            let t6 = and_not(t3, d);
            let t7 = xor(t5, t6);
            let t8 = xor(d, t7);
            let t9 = and_not(a, t4);
            let t10 = not(t9);
            let t11 = xor(t8, t10);
            let t12 = or(t11, t7);
            let t13 = xor(t3, t9);
            let t14 = xor(b, t13);
            let t15 = xor(t12, t14);
            [t11, t4, t15, t7]
        }

        /// Inverse of S-box 5: 16 gates.
        $(#[$feature])*
        #[inline]
        fn inverse_s5([a, b, c, d]: State) -> State {
            let t0 = and(c, b);
            let t1 = xor(d, t0);
            let t2 = and(d, b);
            let t3 = and_not(a, t2);
            let t4 = xor(t1, t3);
            let t5 = xor(b, t4);
            let t6 = xor(c, t1);
            let t7 = and(a, t6);
            let t8 = xor(t5, t7);
            let t9 = and_not(t5, a);
            let t10 = not(t6);
            let t11 = xor(t9, t10);
            let t12 = and_not(t4, t8);
            let t13 = and_not(c, b);
            let t14 = or(t3, t13);
            let t15 = xor(t12, t14);
            [t4, t8, t15, t11]
        }

        /// Inverse of S-box 6: 17 gates.
        $(#[$feature])*
        #[inline]
        fn inverse_s6([a, b, c, d]: State) -> State {
            let t0 = and_not(c, a);
            let t1 = not(b);
            let t2 = xor(d, t1);
            let t3 = xor(t0, t2);
            let t4 = and_not(d, c);
            let t5 = and_not(t3, t4);
            let t6 = and_not(b, t3);
            let t7 = or(a, t6);
            let t8 = xor(c, t7);
            let t9 = xor(t5, t8);
            let t10 = and_not(a, t5);
            let t11 = xor(t2, t10);
            let t12 = and_not(c, d);
            let t13 = and_not(t11, t12);
            let t14 = and(t9, t13);
            let t15 = xor(t3, t14);
            let t16 = xor(t1, t15);
            [t9, t3, t16, t13]
        }

        /// Inverse of S-box 7: 17 gates.
        $(#[$feature])*
        #[inline]
        fn inverse_s7([a, b, c, d]: State) -> State {
            let t0 = and(a, c);
            let t1 = and(b, a);
            let t2 = or(c, t1);
            let t3 = or(a, b);
            let t4 = and(d, t3);
            let t5 = xor(t2, t4);
            let t6 = and_not(d, t5);
            let t7 = xor(b, t4);
            let t8 = or(t6, t7);
            let t9 = xor(t0, t8);
            let t10 = xor(t5, d);
            let t11 = and_not(t10, t7);
            let t12 = xor(a, t11);
            let t13 = not(t12);
            let t14 = or(d, t13);
            let t15 = xor(c, t7);
            let t16 = xor(t14, t15);
            [t16, t13, t9, t5]
        }
    };
}

pub(super) use boxes;
