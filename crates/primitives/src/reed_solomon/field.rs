//! GF(256) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d), in which x itself is primitive.
//!
//! An element is a byte, bit i being the coefficient of x^i. Addition is XOR. The generator is called
//! alpha; [`power`] gives its powers. The tables hold no secrets, so plain look-ups are fine here.

/// The field polynomial.
const POLYNOMIAL: u16 = 0x11d;

/// How many nonzero elements there are, and the order of alpha.
pub(super) const ORDER: usize = 255;

/// `EXP[i]` = alpha^i; twice round, so that the sum of two logarithms needs no reduction.
static EXP: [u8; 2 * ORDER] = exp_table();

/// `LOG[EXP[i]]` = i for i below 255; `LOG[0]` means nothing.
static LOG: [u8; 256] = log_table();

/// For each constant c the map x -> c*x as the bit matrix that GF2P8AFFINEQB takes.
///
/// That instruction makes output bit i the parity of `x & byte 7-i` of the matrix.
#[cfg(target_arch = "x86_64")]
pub(super) static AFFINE: [u64; 256] = affine_table();

/// For each constant c the products with all low nibbles (16 bytes), then with all high nibbles (16 bytes):
/// c*x is the XOR of one of each.
pub(super) static NIBBLES: [[u8; 32]; 256] = nibble_table();

/// alpha^`exponent`.
pub(super) fn power(exponent: usize) -> u8 {
    EXP[exponent % ORDER]
}

/// The exponent i in 0..255 with alpha^i = `element`, which must not be 0.
pub(super) fn log(element: u8) -> usize {
    debug_assert_ne!(element, 0, "0 has no logarithm");
    usize::from(LOG[usize::from(element)])
}

/// The product a*b.
pub(super) fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 { 0 } else { EXP[log(a) + log(b)] }
}

/// The quotient a/b; `b` must not be 0.
pub(super) fn divide(a: u8, b: u8) -> u8 {
    if a == 0 { 0 } else { EXP[log(a) + ORDER - log(b)] }
}

/// The value at `x` of the polynomial whose coefficient of x^i is `coefficients[i]`.
pub(super) fn evaluate(coefficients: &[u8], x: u8) -> u8 {
    coefficients.iter().rev().fold(0, |sum, c| multiply(sum, x) ^ c)
}

/// The product of two field elements by the definition, bit by bit.
pub(super) const fn multiply_bitwise(a: u8, b: u8) -> u8 {
    let mut product = 0u16;
    let mut bit = 8;
    while bit > 0 {
        bit -= 1;
        product <<= 1;
        if product & 0x100 != 0 {
            product ^= POLYNOMIAL;
        }
        if b >> bit & 1 != 0 {
            product ^= a as u16;
        }
    }
    product as u8
}

const fn exp_table() -> [u8; 2 * ORDER] {
    let mut table = [1; 2 * ORDER];
    let mut i = 1;
    while i < table.len() {
        table[i] = multiply_bitwise(table[i - 1], 2);
        i += 1;
    }
    table
}

const fn log_table() -> [u8; 256] {
    let exp = exp_table();
    let mut table = [0; 256];
    let mut i = 0;
    while i < ORDER {
        table[exp[i] as usize] = i as u8;
        i += 1;
    }
    table
}

#[cfg(target_arch = "x86_64")]
const fn affine_table() -> [u64; 256] {
    let mut table = [0; 256];
    let mut c = 0;
    while c < 256 {
        let mut input = 0;
        while input < 8 {
            let product = multiply_bitwise(c as u8, 1 << input);
            let mut output = 0;
            while output < 8 {
                table[c] |= ((product >> output & 1) as u64) << ((7 - output) * 8 + input);
                output += 1;
            }
            input += 1;
        }
        c += 1;
    }
    table
}

const fn nibble_table() -> [[u8; 32]; 256] {
    let mut table = [[0; 32]; 256];
    let mut c = 0;
    while c < 256 {
        let mut nibble = 0;
        while nibble < 16 {
            table[c][nibble] = multiply_bitwise(c as u8, nibble as u8);
            table[c][16 + nibble] = multiply_bitwise(c as u8, (nibble as u8) << 4);
            nibble += 1;
        }
        c += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_agree_with_the_definition() {
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                let product = multiply_bitwise(a, b);
                assert_eq!(multiply(a, b), product, "{a} * {b}");
                let nibbles = &NIBBLES[usize::from(a)];
                let by_nibbles = nibbles[usize::from(b & 15)] ^ nibbles[16 + usize::from(b >> 4)];
                assert_eq!(by_nibbles, product, "{a} * {b} by nibbles");
                if b != 0 {
                    assert_eq!(divide(product, b), a, "{a} * {b} / {b}");
                }
            }
        }
    }

    #[test]
    fn alpha_is_primitive() {
        let mut seen = [false; 256];
        for i in 0..ORDER {
            assert!(!seen[usize::from(power(i))], "alpha^{i} repeats");
            seen[usize::from(power(i))] = true;
            assert_eq!(log(power(i)), i);
        }
        assert_eq!(multiply_bitwise(power(254), 2), 1);
    }
}
