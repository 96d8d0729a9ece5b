//! Whether a text is HTML that every browser reads as it is written: no error of the tokenizer,
//! each element ended by name, and none where a browser would end, move or invent another one.

use html5gum::{DefaultEmitter, Token, Tokenizer};

/// Elements that have no content, and no end.
const VOID: &str = " area base br col embed hr img input link meta source track wbr ";
/// What ends a paragraph that is open.
const BLOCKS: &str = " address article aside blockquote canvas details div dl fieldset figure \
                      footer form h1 h2 h3 h4 h5 h6 header hr main nav ol p pre section table ul ";
/// What may be right inside: anything else is moved elsewhere, or gets a parent that nobody wrote.
const CHILDREN: [(&str, &str); 7] = [
    ("html", " head body "),
    ("table", " caption colgroup thead tbody tfoot "),
    ("thead", " tr "),
    ("tbody", " tr "),
    ("tfoot", " tr "),
    ("tr", " th td "),
    ("select", " option optgroup hr "),
];

fn is_one(of: &str, name: &str) -> bool {
    of.contains(&format!(" {name} "))
}

fn may_be_inside(open: &[String], name: &str) -> bool {
    let Some(parent) = open.last() else { return name == "html" };
    let paragraph = open.iter().any(|name| name == "p") && is_one(BLOCKS, name);
    let nested =
        ["a", "button", "form", "option"].contains(&name) && open.iter().any(|o| o == name);
    let child = CHILDREN.iter().find(|(element, _)| element == parent);
    !paragraph && !nested && child.is_none_or(|(_, children)| is_one(children, name))
}

/// What is wrong with it, each with the elements that are open there.
pub(crate) fn problems(text: &str) -> Vec<String> {
    let mut emitter = DefaultEmitter::default();
    emitter.naively_switch_states(true);
    let (mut open, mut problems) = (Vec::<String>::new(), Vec::new());
    let mut doctype = false;
    for token in Tokenizer::new_with_emitter(text, emitter) {
        let Ok(token) = token;
        let problem = match token {
            Token::Error(error) => Some(format!("{}", *error)),
            Token::Doctype(it) => {
                doctype = !it.force_quirks && open.is_empty();
                (!doctype).then(|| "a doctype of another age".to_owned())
            }
            Token::StartTag(tag) => {
                let name = String::from_utf8_lossy(&tag.name).into_owned();
                let drawn = name == "svg" || open.iter().any(|name| name == "svg");
                let problem = (!may_be_inside(&open, &name) || tag.self_closing && !drawn)
                    .then(|| format!("<{name}> cannot be here"));
                if !is_one(VOID, &name) && !tag.self_closing {
                    open.push(name);
                }
                problem
            }
            Token::EndTag(tag) => {
                let name = String::from_utf8_lossy(&tag.name);
                let ended = open.pop();
                (ended.as_deref() != Some(&*name)).then(|| format!("</{name}> ends {ended:?}"))
            }
            Token::String(text) => {
                let strict = open.last().is_none_or(|last| {
                    CHILDREN.iter().any(|(element, _)| element == last) && last != "select"
                });
                (strict && !text.trim_ascii().is_empty()).then(|| "text cannot be here".to_owned())
            }
            Token::Comment(_) => None,
        };
        problems.extend(problem.map(|problem| format!("{problem}, in {}", open.join(" "))));
    }
    if !doctype {
        problems.push("no doctype".to_owned());
    }
    if !open.is_empty() {
        problems.push(format!("never ended: {}", open.join(" ")));
    }
    problems
}
