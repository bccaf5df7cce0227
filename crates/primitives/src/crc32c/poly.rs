//! Arithmetic with polynomials over GF(2) modulo the CRC-32C polynomial, slowly and at compile time.
//!
//! A word holds a polynomial in reflected order: bit i of a `u32` is the coefficient of x^(31-i), bit k of a
//! `u64` that of x^(63-k). P = x^32 + ... + 1 factors as (x+1) * Q with Q irreducible of degree 31. As
//! 2^31 - 1 is prime, the order of x modulo P is exactly [`ORDER`].

/// P without its leading term, reflected.
pub(super) const POLY: u32 = 0x82f6_3b78;

/// The order of x modulo P: exponents of x count modulo this prime, 2^31 - 1.
pub(super) const ORDER: u64 = (1 << 31) - 1;

/// Q = P / (x+1), reflected: 0 modulo Q and 1 modulo x+1, so adding it repairs a wrong parity alone.
pub(super) const Q: u32 = divide_by_x_plus_1();

/// The inverse of x+1 modulo Q, as some polynomial below P.
///
/// The multiplicative group modulo Q has order 2^31-1, so it is (x+1)^(2^31-2); computing modulo P keeps that
/// value modulo Q.
pub(super) const INVERSE_OF_X_PLUS_1: u32 = power(ONE | ONE >> 1, ORDER - 1);

const ONE: u32 = 1 << 31;

/// `a` * x modulo P.
pub(super) const fn times_x(a: u32) -> u32 {
    (a >> 1) ^ (POLY & (a & 1).wrapping_neg())
}

/// `a` * `b` modulo P.
pub(super) const fn multiply(a: u32, b: u32) -> u32 {
    let mut product = 0;
    let mut shifted = a;
    let mut i = 32;
    while i > 0 {
        i -= 1;
        product ^= shifted & (b >> i & 1).wrapping_neg();
        shifted = times_x(shifted);
    }
    product
}

/// x^`exponent` modulo P; negative exponents are inverses.
pub(super) const fn power_of_x(exponent: i64) -> u32 {
    power(ONE >> 1, exponent.rem_euclid(ORDER as i64) as u64)
}

const fn power(base: u32, mut exponent: u64) -> u32 {
    let mut result = ONE;
    let mut square = base;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = multiply(result, square);
        }
        square = multiply(square, square);
        exponent >>= 1;
    }
    result
}

/// Long division of P by x+1, from the highest term down: each quotient bit is the sum of those of P above it.
const fn divide_by_x_plus_1() -> u32 {
    let mut quotient = 0;
    // The coefficient of x^31 in Q is the leading 1 of P.
    let mut bit = 1;
    let mut i = 0;
    while i < 32 {
        quotient |= bit << i;
        bit ^= POLY >> i & 1;
        i += 1;
    }
    assert!(bit == 0, "x+1 divides P");
    quotient
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x_has_the_order_that_the_exponents_rely_on() {
        assert_eq!(power_of_x(0), ONE);
        assert_eq!(power(ONE >> 1, ORDER), ONE);
        assert_ne!(power_of_x(1), ONE, "the order is a prime, so 1 is its only other divisor");
        assert_eq!(multiply(power_of_x(-5), power_of_x(5)), ONE);
    }

    #[test]
    fn the_factors_and_the_inverse_fit_together() {
        assert_eq!(Q, 0xfca4_2daf);
        assert_eq!(multiply(Q, ONE | ONE >> 1), 0, "(x+1) * Q is P");
        assert_eq!(Q.count_ones() % 2, 1, "Q is 1 at x = 1");
        // Modulo P the product is the idempotent that is 1 modulo Q and 0 modulo x+1: 1 + Q.
        assert_eq!(multiply(INVERSE_OF_X_PLUS_1, ONE | ONE >> 1), ONE ^ Q);
    }
}
