//! Splits a stream of YAML or JSON into its documents, byte for byte.

use serde::de::IgnoredAny;

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// One document of a stream with its separator line, directives, comments and blank lines. A stream is the
/// concatenation of its documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Document<'a> {
    /// Everything between the end of the previous document and the start of the next.
    pub bytes: &'a [u8],
    /// The line of the stream on which it starts, from 1.
    pub line: usize,
}

/// How much of a document comes before a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DocumentState {
    /// Only blank lines, comments and directives: a `---` that follows belongs to the document.
    Preamble,
    /// A `---` or content: the next `---` starts another document.
    Started,
    /// A `...`: what follows is another document.
    Ended,
}

/// Splits a stream into its documents: YAML at its separator lines, JSON also after each value.
///
/// Splitting by lines is exact: YAML forbids `---` and `...` at the start of a line inside any scalar
/// (<https://yaml.org/spec/1.2.2/#914-explicit-documents>), and JSON has no multi-line strings.
pub fn documents(stream: &[u8]) -> Vec<Document<'_>> {
    let mut documents = Vec::new();
    let mut line = 1;
    for bytes in yaml_documents(stream) {
        for bytes in json_values(bytes) {
            documents.push(Document { bytes, line });
            line += bytes.iter().filter(|&&byte| byte == b'\n').count();
        }
    }
    documents
}

fn yaml_documents(stream: &[u8]) -> Vec<&[u8]> {
    let mut documents = Vec::new();
    let (mut start, mut end) = (0, 0);
    let mut state = DocumentState::Preamble;
    for line in stream.split_inclusive(|&byte| byte == b'\n') {
        let text = match end {
            0 => line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line),
            _ => line,
        };
        let separates = is_marker(text, b"---");
        if state == DocumentState::Ended || state == DocumentState::Started && separates {
            documents.push(&stream[start..end]);
            start = end;
            state = DocumentState::Preamble;
        }
        if is_marker(text, b"...") {
            state = DocumentState::Ended;
        } else if separates || has_content(text) {
            state = DocumentState::Started;
        }
        end += line.len();
    }
    if start < end {
        documents.push(&stream[start..end]);
    }
    documents
}

fn is_marker(line: &[u8], marker: &[u8]) -> bool {
    line.strip_prefix(marker)
        .is_some_and(|rest| rest.first().is_none_or(u8::is_ascii_whitespace))
}

fn has_content(line: &[u8]) -> bool {
    let first = line.iter().find(|byte| !byte.is_ascii_whitespace());
    !line.starts_with(b"%") && first.is_some_and(|&byte| byte != b'#')
}

/// Splits JSON values that follow one another without a separator, as `kubectl` does; anything else is one document.
fn json_values(document: &[u8]) -> Vec<&[u8]> {
    let mut values = Vec::new();
    let mut rest = document;
    while starts_json(rest) {
        let skip = rest.len() - rest.strip_prefix(BYTE_ORDER_MARK).unwrap_or(rest).len();
        let mut stream = serde_json::Deserializer::from_slice(&rest[skip..]).into_iter();
        let Some(Ok(IgnoredAny)) = stream.next() else {
            break;
        };
        let (value, after) = rest.split_at(skip + stream.byte_offset());
        if !starts_json(after) {
            break;
        }
        values.push(value);
        rest = after;
    }
    if !rest.is_empty() {
        values.push(rest);
    }
    values
}

fn starts_json(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    matches!(first, Some(b'{' | b'['))
}

/// Whether the whole stream is JSON, or empty: such streams need no `---` between them.
pub fn is_json(stream: &[u8]) -> bool {
    let stream = stream.strip_prefix(BYTE_ORDER_MARK).unwrap_or(stream);
    serde_json::Deserializer::from_slice(stream)
        .into_iter::<IgnoredAny>()
        .all(|value| value.is_ok())
}

/// Whether the stream begins with a separator.
pub fn starts_with_separator(stream: &[u8]) -> bool {
    documents(stream).first().is_some_and(|first| {
        let mut lines = first.bytes.split(|&byte| byte == b'\n');
        lines.any(|line| is_marker(line, b"---"))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(stream: &str) -> Vec<(usize, &str)> {
        documents(stream.as_bytes())
            .into_iter()
            .map(|document| (document.line, str::from_utf8(document.bytes).unwrap()))
            .collect()
    }

    #[test]
    fn only_separator_lines_split_documents() {
        let table: &[(&str, &[(usize, &str)])] = &[
            ("", &[]),
            ("a: 1", &[(1, "a: 1")]),
            ("a: 1\n---\nb: 2\n", &[(1, "a: 1\n"), (2, "---\nb: 2\n")]),
            (
                "---\n---\n# c\n---\n",
                &[(1, "---\n"), (2, "---\n# c\n"), (4, "---\n")],
            ),
            (
                "# license\n%YAML 1.1\n---\na: 1\n",
                &[(1, "# license\n%YAML 1.1\n---\na: 1\n")],
            ),
            (
                "a: 1\n...\n# between\n%YAML 1.1\n---\nb: 2\n",
                &[(1, "a: 1\n...\n"), (3, "# between\n%YAML 1.1\n---\nb: 2\n")],
            ),
            (
                "a: |\n  x\n  ---\n ---\n----\n---x\n",
                &[(1, "a: |\n  x\n  ---\n ---\n----\n---x\n")],
            ),
            (
                "a: 1\r\n---\r\nb: 2",
                &[(1, "a: 1\r\n"), (2, "---\r\nb: 2")],
            ),
            (
                "\u{feff}---\na: 1\n--- # x\nb: 2",
                &[(1, "\u{feff}---\na: 1\n"), (3, "--- # x\nb: 2")],
            ),
            ("--- {a: 1}\n---", &[(1, "--- {a: 1}\n"), (2, "---")]),
        ];
        for (stream, want) in table {
            assert_eq!(&split(stream), want, "{stream:?}");
        }
    }

    #[test]
    fn json_values_need_no_separator() {
        let table: &[(&str, &[(usize, &str)])] = &[
            (
                "{\"a\":\n1}\n{}[]\n",
                &[(1, "{\"a\":\n1}"), (2, "\n{}"), (3, "[]\n")],
            ),
            ("{\"a\": 1}\n# end\n", &[(1, "{\"a\": 1}\n# end\n")]),
            ("{a: 1}\n", &[(1, "{a: 1}\n")]),
            (
                "{\"a\": 1}\n---\n{}\n",
                &[(1, "{\"a\": 1}\n"), (2, "---\n{}\n")],
            ),
            ("\u{feff}{}{}", &[(1, "\u{feff}{}"), (1, "{}")]),
        ];
        for (stream, want) in table {
            assert_eq!(&split(stream), want, "{stream:?}");
        }
    }

    proptest! {
        #[test]
        fn documents_concatenate_to_their_stream(
            lines in proptest::collection::vec(
                prop_oneof![
                    Just("---"), Just("..."), Just("--- # x"), Just("%YAML 1.1"), Just("# c"), Just(""),
                    Just("{}"), Just("{"), Just("a: |"), Just("  ---"), Just("\u{feff}"), Just("[1]{"),
                ],
                0..12,
            ),
            newline in prop_oneof![Just("\n"), Just("\r\n"), Just("\r")],
            tail in proptest::collection::vec(any::<u8>(), 0..8),
        ) {
            let mut stream = lines.join(newline).into_bytes();
            stream.extend(tail);
            let documents = documents(&stream);
            let joined: Vec<u8> = documents.iter().flat_map(|document| document.bytes).copied().collect();
            prop_assert_eq!(&joined, &stream);
            let mut line = 1;
            for document in documents {
                prop_assert_eq!(document.line, line);
                line += document.bytes.iter().filter(|&&byte| byte == b'\n').count();
            }
        }
    }
}
