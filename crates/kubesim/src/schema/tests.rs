use super::Schemas;

#[test]
fn the_embedded_schemas_can_be_read() {
    let _ = Schemas::builtin();
}
