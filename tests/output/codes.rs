//! `docs/codes.md` lists every code of the webhook.

use std::fmt::Write as _;
use std::path::Path;

use admission::{Code, Effect};
use tests::golden;

#[test]
fn page_lists_every_code() {
    let page = to_markdown();
    for code in Code::ALL {
        assert!(page.contains(&format!("| {code} | {code:?} |")));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/codes.md");
    golden::check_file(&path, &page);
}

/// Renders all codes as the page `docs/codes.md`.
fn to_markdown() -> String {
    let mut page = String::from(
        "# Codes\n\n\
         <!-- Written by `UPDATE_GOLDEN=1 cargo test -p tests --test output codes::`; edit `webhook/admission/src/diagnostics.rs`. -->\n\n\
         A code is a reason why a pod is skipped or denied, or a warning. Its number never changes.\n\
         This page names annotations without their prefix `envoy-drainer.dev/`.\n\n\
         In a cluster, the API server does not call the webhook for pods with DRN002 to DRN005 and DRN015. Only `explain` reports\n\
         these codes; `check` reports DRN002 to DRN005 too.\n",
    );
    for (effect, title) in [
        (Effect::Skip, "Skipped: admitted without a drainer"),
        (
            Effect::Denial,
            "Denied (with `onInvalid: warn`: a default is used, or the pod is skipped)",
        ),
        (Effect::Warning, "Warnings: they change no decision"),
        (
            Effect::Assumption,
            "Assumptions: warnings for which `inject --strict` fails",
        ),
        (
            Effect::Fault,
            "Faults of the webhook: admitted without a drainer",
        ),
    ] {
        let _ = write!(
            page,
            "\n## {title}\n\n| code | name | what it means | what to do |\n| --- | --- | --- | --- |\n"
        );
        for code in Code::ALL.iter().filter(|code| code.effect() == effect) {
            let _ = writeln!(
                page,
                "| {code} | {code:?} | {} | {} |",
                code.sentence(),
                code.remedy()
            );
        }
    }
    page
}
