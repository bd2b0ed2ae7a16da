//! docs/codes.md lists the codes as they are defined in code; `UPDATE_GOLDEN=1` rewrites it.

use std::path::Path;

use tests::golden;
use webhook::admission::diagnostics;

#[test]
fn codes_page_lists_every_code() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/codes.md");
    golden::check_file(&page, &diagnostics::to_markdown());
}
