//! The page of codes is what the code says.

use std::path::Path;

use tests::golden;
use webhook::admission::diagnostics;

#[test]
fn the_page_lists_every_code() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/codes.md");
    golden::check_file(&page, &diagnostics::to_markdown());
}
