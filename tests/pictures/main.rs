//! Draws the pictures of the pages: from the figures in `docs/measured`, as SVG into `docs/images`.

mod bars;
mod canvas;
mod latency;
mod losses;
mod memory;

use std::fs;
use std::path::{Path, PathBuf};

use ::tests::drill_reports::{self, PodEnd, Setting};
use ::tests::figures;
use anyhow::{Context, Result};

/// A picture in `docs/images`.
struct Picture {
    /// The name of its file.
    file: &'static str,
    draw: fn() -> Result<String>,
}

const PICTURES: [Picture; 5] = [
    Picture {
        file: "memory.svg",
        draw: || memory::draw(&figures::read("peers")?),
    },
    Picture {
        file: "lost-requests.svg",
        draw: draw_lost_requests,
    },
    Picture {
        file: "lost-requests-dark.svg",
        draw: || Ok(canvas::dark(&draw_lost_requests()?)),
    },
    Picture {
        file: "losses.svg",
        draw: draw_losses,
    },
    Picture {
        file: "latency.svg",
        draw: || latency::draw(&figures::read("admission")?),
    },
];

fn main() -> Result<()> {
    for picture in PICTURES {
        let file = docs().join("images").join(picture.file);
        let svg = (picture.draw)().with_context(|| format!("drawing {}", picture.file))?;
        fs::write(&file, svg).with_context(|| file.display().to_string())?;
    }
    Ok(())
}

/// Draws what drills lost, for each way to end a pod.
fn draw_losses() -> Result<String> {
    let ends = [
        PodEnd::Sigterm,
        PodEnd::Sleep15,
        PodEnd::EnvoyGateway,
        PodEnd::Contour,
        PodEnd::Drainer,
    ];
    let mut drills = Vec::new();
    for end in ends {
        let first = drill_reports::read(Setting::BehindLag, end)?
            .into_iter()
            .next();
        drills.push((end.name(), first.context("no drill")?));
    }
    losses::draw(&drills)
}

/// Draws how many requests failed, for each way to end a pod.
fn draw_lost_requests() -> Result<String> {
    use PodEnd::{Contour, Drainer, EnvoyGateway, Sigterm, Sleep15, Sleep30};
    let mut drills = Vec::new();
    for end in [Drainer, Sleep30, Sleep15, EnvoyGateway, Contour, Sigterm] {
        let total = drill_reports::total(Setting::BehindLag, end)?;
        drills.extend(total.map(|(failed, sent)| (end.name(), failed, sent)));
    }
    let title = "Failed requests of rollouts, with endpoints 15 s late";
    bars::draw(title, &drills)
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

#[cfg(test)]
mod tests {
    use ::tests::golden;

    use super::*;

    /// `make pictures` draws them again.
    #[test]
    fn pictures_are_those_of_the_checked_in_figures() {
        let images = docs().join("images");
        for entry in fs::read_dir(&images).unwrap() {
            let file = entry.unwrap().file_name();
            let picture = PICTURES.iter().find(|it| it.file == file);
            let picture =
                picture.unwrap_or_else(|| panic!("{} is drawn by nothing", file.display()));
            golden::check_file(&images.join(&file), &(picture.draw)().unwrap());
        }
    }
}
