//! Which images are ours.

/// The last component of the name of our image, in any registry.
pub(super) const NAME: &str = "shipshape";

/// Whether an image is ours: its repository ends in `shipshape`. Registry, tag and digest do not matter, because mirrors and releases
/// change them.
pub(super) fn is_ours(image: &str) -> bool {
    let repository = image.split_once('@').map_or(image, |(repository, _)| repository);
    let name = repository.rsplit('/').next().unwrap_or_default();
    let name = name.split_once(':').map_or(name, |(name, _)| name);
    name == NAME
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_image_is_known_by_its_name_in_any_registry() {
        for image in [
            "shipshape",
            "shipshape:1.2",
            "image.invalid/shipshape:unreleased",
            "registry.example:5000/team/shipshape@sha256:0123",
            "registry.example:5000/team/shipshape:1@sha256:0123",
        ] {
            assert!(is_ours(image), "{image}");
        }
        for image in [
            "",
            "shipshape/web",
            "registry.example/shipshape/web:1",
            "not-shipshape:1",
            "a/b:shipshape",
            "a@shipshape",
        ] {
            assert!(!is_ours(image), "{image}");
        }
    }
}
