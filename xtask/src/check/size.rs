//! Sizes: a file past 400 lines or a function past 50 wants a better shape; somewhat above, it must have one.

use super::Violation;
use super::source::Source;

/// Lines, those of tests not counted.
struct Limit {
    aim: usize,
    most: usize,
}

const FILE: Limit = Limit { aim: 400, most: 600 };
const FUNCTION: Limit = Limit { aim: 50, most: 90 };

/// What is past the aim, and what is past the most.
pub(super) fn judge(sources: &[Source]) -> (Vec<Violation>, Vec<Violation>) {
    let (mut warnings, mut violations) = (Vec::new(), Vec::new());
    let mut judge = |source: &Source, line: usize, what: &str, lines: usize, limit: &Limit| {
        let found = |rule| Violation { path: source.path.clone(), line, rule };
        if lines > limit.most {
            violations.push(found(format!("{what} has {lines} lines, more than {}", limit.most)));
        } else if lines > limit.aim {
            warnings.push(found(format!("{what} has {lines} lines (aim: {})", limit.aim)));
        }
    };
    for source in sources {
        judge(source, 1, "the file", source.lines, &FILE);
        for function in &source.functions {
            judge(source, function.line, &function.name, function.lines, &FUNCTION);
        }
    }
    (warnings, violations)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(text: &str) -> (Vec<String>, Vec<String>) {
        let (warnings, violations) = judge(&[Source::parse("bench/src/main.rs", text).unwrap()]);
        let rules = |found: Vec<Violation>| found.into_iter().map(|violation| violation.rule).collect();
        (rules(warnings), rules(violations))
    }

    fn function(lines: usize) -> String {
        format!("fn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2))
    }

    #[test]
    fn a_function_past_the_aim_is_named_and_one_past_the_most_fails() {
        assert_eq!(judged(&function(50)), (vec![], vec![]));
        assert_eq!(judged(&function(51)), (vec!["f has 51 lines (aim: 50)".into()], vec![]));
        assert_eq!(judged(&function(91)), (vec![], vec!["f has 91 lines, more than 90".into()]));
    }

    #[test]
    fn a_file_is_measured_without_its_tests() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "    // a line\n".repeat(700));
        assert_eq!(judged(&tests), (vec![], vec![]));
        assert_eq!(judged(&"// a line\n".repeat(400)), (vec![], vec![]));
        assert_eq!(judged(&"// a line\n".repeat(401)), (vec!["the file has 401 lines (aim: 400)".into()], vec![]));
        assert_eq!(judged(&"// a line\n".repeat(601)), (vec![], vec!["the file has 601 lines, more than 600".into()]));
    }
}
