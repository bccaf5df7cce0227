//! Places of attributes: in the inode, in its block, or the value in an inode of its own.
//!
//! Small ones lie in the inode as they come, the rest in the block. Where that has no room, what is there already keeps its
//! place, as in the kernel. With the feature `ea_inode` values move to inodes of their own after that: new ones first, which is all
//! that the kernel moves, then the largest.

use crate::format::xattr::{Attribute, ENCRYPTION, Value};

/// The place that an attribute had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    New,
    Inode,
    Block,
}

/// An attribute, and the place that it had.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub attribute: Attribute,
    pub place: Place,
}

/// Bytes for attributes in the inode, and in a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub inode: usize,
    pub block: usize,
}

/// Where attributes go: whether into the inode, and whether the value moves to an inode of its own, for each of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub is_inside: Vec<bool>,
    pub moves: Vec<bool>,
}

/// Places of attributes whose order stays; `None` where there is no room for them.
pub(super) fn plan(list: &[Placed], room: Room, has_inodes: bool) -> Option<Plan> {
    let mut moves = vec![false; list.len()];
    loop {
        let sizes: Vec<usize> = list.iter().zip(&moves).map(|(placed, moves)| size(placed, *moves)).collect();
        let is_inside = fit(list, &sizes, room, false).or_else(|| fit(list, &sizes, room, true));
        if let Some(is_inside) = is_inside {
            return Some(Plan { is_inside, moves });
        }
        let can_move = |at: &usize| has_inodes && !moves[*at] && is_movable(&list[*at]);
        let next =
            (0..list.len()).filter(can_move).max_by_key(|at| (list[*at].place == Place::New, sizes[*at]))?;
        moves[next] = true;
    }
}

/// Puts each attribute into the inode if it has room there, else into the block; those that have a place stay if they `stay`.
fn fit(list: &[Placed], sizes: &[usize], room: Room, stay: bool) -> Option<Vec<bool>> {
    let mut left = room;
    let mut is_inside = vec![false; list.len()];
    if stay {
        for ((placed, size), is_inside) in list.iter().zip(sizes).zip(&mut is_inside) {
            match placed.place {
                Place::New => {}
                Place::Inode => {
                    left.inode = left.inode.checked_sub(*size)?;
                    *is_inside = true;
                }
                Place::Block => left.block = left.block.checked_sub(*size)?,
            }
        }
    }
    for ((placed, size), is_inside) in list.iter().zip(sizes).zip(&mut is_inside) {
        if stay && placed.place != Place::New {
            continue;
        }
        if let Some(rest) = left.inode.checked_sub(*size) {
            left.inode = rest;
            *is_inside = true;
        } else if placed.attribute.is_inline_data() {
            return None;
        } else {
            left.block = left.block.checked_sub(*size)?;
        }
    }
    Some(is_inside)
}

/// Bytes that an attribute takes, without its value if that moves.
fn size(placed: &Placed, moves: bool) -> usize {
    match moves {
        true => placed.attribute.entry_size(),
        false => placed.attribute.size(),
    }
}

/// Whether a value can move to an inode of its own: none that the file is not read without.
fn is_movable(placed: &Placed) -> bool {
    let is_needed = placed.attribute.is_inline_data() || placed.attribute.index == ENCRYPTION;
    matches!(&placed.attribute.value, Value::Here(value) if !value.is_empty()) && !is_needed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(place: Place, len: usize) -> Placed {
        let attribute = Attribute { index: 1, name: b"name".to_vec(), value: Value::Here(vec![7; len]) };
        Placed { attribute, place }
    }

    #[test]
    fn what_has_a_place_keeps_it_where_the_order_leaves_no_room() {
        // Entries of 20 bytes: one of the block would take the room that only the new one has a use for.
        let list = [placed(Place::Block, 20), placed(Place::New, 80)];
        let room = Room { inode: 100, block: 50 };
        let planned = plan(&list, room, false).unwrap();
        assert_eq!(planned.is_inside, [false, true]);
        assert_eq!(planned.moves, [false, false]);
        assert_eq!(plan(&list, Room { inode: 99, block: 50 }, false), None);
    }

    #[test]
    fn the_new_value_moves_and_then_the_largest() {
        let list = [placed(Place::Block, 100), placed(Place::Block, 40), placed(Place::New, 60)];
        let planned = plan(&list, Room { inode: 0, block: 200 }, true).unwrap();
        assert_eq!((planned.is_inside, planned.moves), (vec![false; 3], vec![false, false, true]));
        // Its entry has no room yet.
        let planned = plan(&list, Room { inode: 0, block: 190 }, true).unwrap();
        assert_eq!(planned.moves, [true, false, true]);
        assert_eq!(plan(&list, Room { inode: 0, block: 59 }, true), None);
    }
}
