//! One codeword: errors and erasures from its syndromes.
//!
//! Syndrome i is the received polynomial at alpha^i; a symbol at position X = alpha^e (its exponent is e) that
//! is wrong by v adds v * X^i. The algorithm is the textbook's: Berlekamp-Massey started with the erasures'
//! locator, then the locator's roots, then Forney's formula (Blahut, "Algebraic Codes for Data Transmission",
//! sections 7.4 to 7.6).

use super::code::MAX_ROOTS;
use super::field::{ORDER, divide, evaluate, log, multiply, power};

/// Room for a polynomial of degree up to [`MAX_ROOTS`].
type Polynomial = [u8; MAX_ROOTS + 1];

/// Where symbols are wrong, as exponents of X, and by how much.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Errors {
    /// Exponent e of each wrong or erased symbol: the coefficient of x^e.
    pub(super) exponents: Vec<usize>,
    /// The value to add to each of them; 0 for an erased symbol that happens to be right.
    pub(super) values: Vec<u8>,
}

/// Syndromes of a codeword whose remainder modulo the generator is `remainder`, highest coefficient first.
pub(super) fn syndromes(remainder: &[u8]) -> Polynomial {
    let mut syndromes = [0; MAX_ROOTS + 1];
    for (i, syndrome) in syndromes[..remainder.len()].iter_mut().enumerate() {
        *syndrome = remainder.iter().fold(0, |sum, r| multiply(sum, power(i)) ^ r);
    }
    syndromes
}

/// Finds the errors behind the first `roots` syndromes, given the exponents of known erasures.
///
/// Finds every pattern of t errors beside e erasures with 2*t + e <= `roots`. None when there is no such
/// pattern; a codeword with more errors than that can also look like another one with few, and then the
/// answer is that one's.
pub(super) fn solve(syndromes: &Polynomial, roots: usize, erasures: &[usize]) -> Option<Errors> {
    let syndromes = &syndromes[..roots];
    let (locator, degree) = locator(syndromes, erasures)?;

    // The locator's roots are the inverses of the positions.
    let exponents: Vec<usize> =
        (0..ORDER).filter(|e| evaluate(&locator[..=degree], power(ORDER - e)) == 0).collect();
    if exponents.len() != degree || erasures.iter().any(|e| !exponents.contains(e)) {
        return None;
    }

    // Omega = syndromes * locator mod x^roots; value = X * Omega(1/X) / locator'(1/X).
    let mut omega = [0; MAX_ROOTS];
    for (i, omega) in omega[..roots].iter_mut().enumerate() {
        for j in 0..=i.min(degree) {
            *omega ^= multiply(locator[j], syndromes[i - j]);
        }
    }
    let mut slope = [0; MAX_ROOTS + 1];
    for i in (1..=degree).step_by(2) {
        slope[i - 1] = locator[i];
    }
    let mut values = Vec::with_capacity(degree);
    for e in &exponents {
        let inverse = power(ORDER - e);
        let below = evaluate(&slope, inverse);
        if below == 0 {
            return None;
        }
        values.push(multiply(power(*e), divide(evaluate(&omega[..roots], inverse), below)));
    }

    // The last word: do these errors give these syndromes?
    let explained = syndromes.iter().enumerate().all(|(i, syndrome)| {
        let terms = exponents.iter().zip(&values).map(|(e, value)| multiply(*value, power(e * i)));
        terms.fold(*syndrome, |sum, term| sum ^ term) == 0
    });
    explained.then_some(Errors { exponents, values })
}

/// The polynomial whose roots are the inverse positions of all errors and erasures, and its degree.
fn locator(syndromes: &[u8], erasures: &[usize]) -> Option<(Polynomial, usize)> {
    let roots = syndromes.len();
    let mut locator = [0; MAX_ROOTS + 1];
    locator[0] = 1;
    for (degree, e) in erasures.iter().enumerate() {
        // Times (1 + X*x).
        for i in (0..=degree).rev() {
            locator[i + 1] ^= multiply(locator[i], power(*e));
        }
    }
    let mut length = erasures.len();
    let mut previous = locator;
    for step in erasures.len()..roots {
        // previous *= x; its top coefficient is 0 as long as a solution can exist.
        previous.copy_within(0..MAX_ROOTS, 1);
        previous[0] = 0;
        let sum = (0..=step).fold(0, |sum, i| sum ^ multiply(locator[i], syndromes[step - i]));
        if sum == 0 {
            continue;
        }
        let mut next = locator;
        for (next, previous) in next.iter_mut().zip(previous) {
            *next ^= multiply(sum, previous);
        }
        if 2 * length <= step + erasures.len() {
            length = step + 1 + erasures.len() - length;
            previous = locator.map(|c| divide(c, sum));
        }
        locator = next;
    }
    let degree = (0..=MAX_ROOTS).rev().find(|i| locator[*i] != 0)?;
    let errors = degree.checked_sub(erasures.len())?;
    (degree == length && 2 * errors + erasures.len() <= roots).then_some((locator, degree))
}

/// Solves for the values of up to `roots` erasures, for many codewords with the same ones.
///
/// The remainder of a codeword is the sum over its erasures of value * (x^e mod g), so the values are
/// linear in the remainder. `exponents` are distinct and below 255. Gives the matrix `values` (one line for each
/// erasure, `roots` long: value = line * remainder) and the matrix `checks` (roots - erasures lines; a codeword
/// whose only errors are these erasures gives 0 for each).
pub(super) fn erasure_matrices(roots: usize, exponents: &[usize]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    // Syndrome i = sum over r of remainder[r] * alpha^(i * (roots-1-r)) = sum of value * alpha^(i*e).
    // Eliminate the left side of [ alpha^(i*e) | alpha^(i*(roots-1-r)) ].
    let count = exponents.len();
    let mut lines: Vec<Vec<u8>> = (0..roots)
        .map(|i| {
            let unknown = exponents.iter().map(|e| power(i * e));
            unknown.chain((0..roots).map(|r| power(i * (roots - 1 - r)))).collect()
        })
        .collect();
    for pivot in 0..count {
        // OK to unwrap: any `count` lines' Vandermonde columns of distinct positions are independent.
        let line = (pivot..roots).find(|line| lines[*line][pivot] != 0).unwrap();
        lines.swap(pivot, line);
        let scale = power(ORDER - log(lines[pivot][pivot]));
        lines[pivot].iter_mut().for_each(|c| *c = multiply(*c, scale));
        let chosen = lines[pivot].clone();
        for (i, line) in lines.iter_mut().enumerate() {
            let factor = line[pivot];
            if i != pivot && factor != 0 {
                line.iter_mut().zip(&chosen).for_each(|(c, chosen)| *c ^= multiply(factor, *chosen));
            }
        }
    }
    let mut right: Vec<Vec<u8>> = lines.into_iter().map(|line| line[count..].to_vec()).collect();
    let checks = right.split_off(count);
    (right, checks)
}
