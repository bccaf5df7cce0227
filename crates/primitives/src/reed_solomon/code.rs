//! The constants of one code: its generator polynomial, and the form of it that costs half the products.
//!
//! A codeword is a polynomial whose coefficient of x^(254-j) is symbol j; the message comes first and the
//! parity symbols are the coefficients of x^(roots-1) down to x^0. It is divisible by
//!
//! ```text
//! g(x) = (x - alpha^0) (x - alpha^1) ... (x - alpha^(roots-1)).
//! ```
//!
//! The textbook encoder divides by g with a shift register. For each message symbol v:
//!
//! ```text
//! f = v + p[0];   p[m] = p[m+1] + g[roots-1-m] * f   (p[roots] = 0)
//! ```
//!
//! which is `roots` products a symbol. The roots of g are consecutive powers, so g(delta * y) with
//! delta = alpha^((roots-1)/2) is, but for a factor, a polynomial h(y) that reads the same backwards and
//! begins and ends with 1 (square roots always exist in GF(256)). With s[m] = delta^-(m+j) * p[m] after j
//! symbols the register becomes
//!
//! ```text
//! f = delta^-j * v + s[0];   s[m] = s[m+1] + h[roots-1-m] * f
//! ```
//!
//! in which each product serves two places: `roots/2 + 1` products a symbol.

use super::field::{ORDER, divide, multiply, power};

/// The most parity symbols a codeword may have here.
pub(super) const MAX_ROOTS: usize = 24;

/// The constants of the code with `roots` parity symbols.
pub(super) struct Code {
    /// Number of parity symbols, 2..=24.
    pub(super) roots: usize,
    /// Factor of message symbol j on its way into the register: delta^-j.
    pub(super) input: [u8; ORDER],
    /// h, the coefficient of y^i at index i; `feedback[i] == feedback[roots - i]` and the ends are 1.
    pub(super) feedback: [u8; MAX_ROOTS + 1],
    /// Factor that turns register cell m into parity symbol m after a whole message: delta^(m + message).
    pub(super) output: [u8; MAX_ROOTS],
    /// For each f the products g[roots-1-m] * f, byte m of the little-endian words: the whole unscaled
    /// register's feedback in one look-up.
    pub(super) products: Box<[[u64; MAX_ROOTS / 8]; 256]>,
}

impl Code {
    /// The constants for 2..=24 parity symbols.
    pub(super) fn new(roots: usize) -> Code {
        let generator = generator(roots);
        // (roots - 1) / 2 in the exponents, which count modulo 255: 128 is the half of 1 there.
        let delta = (roots - 1) * 128 % ORDER;

        let mut feedback = [0; MAX_ROOTS + 1];
        for i in 0..=roots {
            // h_i = g_i * delta^(i - roots)
            feedback[i] = multiply(generator[i], power(delta * (ORDER + i - roots)));
        }
        let mut input = [0; ORDER];
        for (j, factor) in input.iter_mut().enumerate() {
            *factor = divide(1, power(delta * j));
        }
        let mut output = [0; MAX_ROOTS];
        for (m, factor) in output.iter_mut().enumerate() {
            *factor = power(delta * (m + ORDER - roots));
        }
        let mut products = Box::new([[0; MAX_ROOTS / 8]; 256]);
        for (f, words) in products.iter_mut().enumerate() {
            for m in 0..roots {
                let product = multiply(generator[roots - 1 - m], f as u8);
                words[m / 8] |= u64::from(product) << (m % 8 * 8);
            }
        }
        Code { roots, input, feedback, output, products }
    }

    /// How many message symbols a codeword has.
    pub(super) fn message_symbols(&self) -> usize {
        ORDER - self.roots
    }
}

/// g(x), the coefficient of x^i at index i; monic of degree `roots`.
fn generator(roots: usize) -> [u8; MAX_ROOTS + 1] {
    let mut g = [0; MAX_ROOTS + 1];
    g[0] = 1;
    for root in 0..roots {
        // Times (x + alpha^root).
        for i in (0..=root + 1).rev() {
            let shifted = if i == 0 { 0 } else { g[i - 1] };
            g[i] = shifted ^ multiply(g[i], power(root));
        }
    }
    g
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reed_solomon::field::evaluate;

    #[test]
    fn the_generator_vanishes_at_its_roots_only() {
        for roots in 2..=MAX_ROOTS {
            let g = generator(roots);
            assert_eq!(g[roots], 1, "{roots} roots");
            for i in 0..ORDER {
                assert_eq!(evaluate(&g[..=roots], power(i)) == 0, i < roots, "{roots} roots at alpha^{i}");
            }
        }
    }

    #[test]
    fn the_scaled_generator_reads_the_same_backwards() {
        for roots in 2..=MAX_ROOTS {
            let h = Code::new(roots).feedback;
            assert_eq!((h[0], h[roots]), (1, 1), "{roots} roots");
            for i in 0..=roots {
                assert_eq!(h[i], h[roots - i], "{roots} roots, coefficient {i}");
            }
        }
    }
}
