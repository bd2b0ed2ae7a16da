//! What the pictures have in common: their width, colours and font.

use anyhow::Result;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// A part of a picture, in pixels from its upper left corner.
pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A point, in pixels.
type Point = (i32, i32);

/// The width of pictures, in pixels.
pub(crate) const WIDTH: u32 = 960;

/// The size of text, in pixels.
const TEXT: u32 = 14;
pub(crate) const SMALL: u32 = 12;

pub(crate) const INK: RGBColor = RGBColor(50, 50, 50);
pub(crate) const GRID: RGBColor = RGBColor(225, 225, 225);

/// Where a text is, relative to its point. It is centred vertically.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Side {
    Left,
    Right,
}

/// Draws an SVG of this width and height on white, so that it is readable on a dark page too.
pub(crate) fn draw(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Result<()>) -> Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE)?;
        draw(&area)?;
        area.present()?;
    }
    Ok(svg)
}

/// The same picture for dark pages.
pub(crate) fn dark(svg: &str) -> String {
    let svg = svg.replace("#FFFFFF", "#0D1117");
    let svg = svg.replace("#323232", "#E6EDF3");
    svg.replace("#2670C4", "#58A6FF")
}

pub(crate) fn font(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

pub(crate) fn text(area: &Area<'_>, text: &str, at: Point, side: Side) -> Result<()> {
    write(area, text, at, side, &font(TEXT))
}

pub(crate) fn title(area: &Area<'_>, text: &str, at: Point) -> Result<()> {
    let font = ("sans-serif", TEXT + 1, FontStyle::Bold).into_font();
    write(area, text, at, Side::Right, &font.color(&INK))
}

pub(crate) fn rectangle(area: &Area<'_>, corners: [Point; 2], color: RGBColor) -> Result<()> {
    Ok(area.draw(&Rectangle::new(corners, color.filled()))?)
}

pub(crate) fn write(
    area: &Area<'_>,
    text: &str,
    at: Point,
    side: Side,
    style: &TextStyle<'_>,
) -> Result<()> {
    let anchor = match side {
        Side::Left => HPos::Right,
        Side::Right => HPos::Left,
    };
    Ok(area.draw_text(text, &style.pos(Pos::new(anchor, VPos::Center)), at)?)
}
