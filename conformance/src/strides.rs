//! Strides that a case gives its tensors.

use plumbline_reference::{Tensor, TensorType};

/// Requires one stride per dimension, and elements that do not share places. Where
/// `repeats`, the first of three dimensions, a batch, may have stride 0: every product then
/// has the elements of the first one.
pub(crate) fn check(ty: &TensorType, strides: &[usize], repeats: bool) -> Result<(), String> {
    let shape = &ty.shape;
    if strides.len() != shape.len() {
        let given = strides.len();
        return Err(format!("{given} strides for shape {shape:?}; give one per dimension, in elements"));
    }
    let is_batch = |dimension: usize| dimension == 0 && shape.len() == 3;
    let mut dimensions: Vec<_> =
        (0..shape.len()).filter(|&i| !(repeats && is_batch(i) && strides[i] == 0)).collect();
    dimensions.retain(|&i| shape[i] > 1);
    dimensions.sort_by_key(|&i| strides[i]);
    // Elements up to the end of the dimensions inside.
    let mut inside = 1usize;
    for i in dimensions {
        if strides[i] < inside {
            let who =
                if repeats { "only the batch of a rank-3 input repeats" } else { "outputs never repeat" };
            return Err(format!(
                "stride {} of dimension {i} is less than {inside}, so that elements of shape {shape:?} \
                 share places; {who}, with stride 0",
                strides[i]
            ));
        }
        let span = (shape[i] - 1).checked_mul(strides[i]).and_then(|span| span.checked_add(inside));
        inside = span.ok_or_else(|| format!("strides {strides:?} reach beyond any memory"))?;
    }
    Ok(())
}

/// A tensor under the strides of its input.
pub(crate) fn lay_out(tensor: Tensor, strides: Option<&[usize]>) -> Result<Tensor, String> {
    match strides {
        None => Ok(tensor),
        Some(strides) => {
            check(tensor.ty(), strides, true)?;
            tensor.with_strides(strides).map_err(|error| error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plumbline_reference::format::F32;

    fn check(shape: &[usize], strides: &[usize], repeats: bool) -> Result<(), String> {
        super::check(&TensorType::new(F32, shape), strides, repeats)
    }

    #[test]
    fn gaps_and_any_order_are_fine() {
        for strides in [[12, 4, 1], [20, 5, 1], [1, 2, 6], [12, 1, 3], [100, 7, 2]] {
            assert_eq!(check(&[2, 3, 4], &strides, false), Ok(()), "{strides:?}");
        }
        assert_eq!(check(&[1, 4], &[0, 1], false), Ok(()));
        assert_eq!(check(&[], &[], false), Ok(()));
        assert_eq!(check(&[0, 4], &[4, 1], false), Ok(()));
    }

    #[test]
    fn elements_share_places_only_along_the_batch_of_an_input() {
        assert_eq!(check(&[5, 3, 4], &[0, 4, 1], true), Ok(()));
        for (shape, strides, repeats) in [
            (&[5, 3, 4][..], &[0, 4, 1][..], false),
            (&[5, 3, 4], &[4, 0, 1], true),
            (&[3, 4], &[0, 1], true),
            (&[3, 4], &[3, 1], true),
            (&[3, 4], &[1, 1], true),
            (&[2, 3, 4], &[11, 4, 1], true),
        ] {
            let why = check(shape, strides, repeats).unwrap_err();
            assert!(why.contains("share places"), "{shape:?} {strides:?}: {why}");
        }
        assert!(check(&[3, 4], &[1], true).unwrap_err().contains("one per dimension"));
        assert!(check(&[3, 4], &[usize::MAX, 1], true).unwrap_err().contains("beyond any memory"));
    }

    #[test]
    fn a_repeated_batch_holds_the_first_one() {
        let codes: Vec<_> = (0..12).collect();
        let tensor = Tensor::from_codes(TensorType::new(F32, [3, 2, 2]), &codes).unwrap();
        let repeated = lay_out(tensor.clone(), Some(&[0, 1, 3])).unwrap();
        assert_eq!(repeated.codes().collect::<Vec<_>>(), [0, 1, 2, 3].repeat(3));
        let spread = lay_out(tensor, Some(&[9, 1, 3])).unwrap();
        assert_eq!(spread.codes().collect::<Vec<_>>(), codes);
        assert_eq!(spread.bytes()[8..12], [0xff; 4], "a gap");
    }
}
