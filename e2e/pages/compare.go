package pages

import (
	"regexp"
	"strings"
)

// differs matches values that may differ from one run to the next.
var differs = regexp.MustCompile(`\b[0-9]+(\.[0-9]+)?(ns|µs|ms|s|m|h)([0-9]+(\.[0-9]+)?(ms|s|m))*\b` +
	`|\b[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z\b` +
	`|\b[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?\b|\b[0-9]{4}-[0-9]{2}-[0-9]{2}\b|\b[0-9]+(\.[0-9]+)? [KMG]iB\b|;dur=[0-9.]+` +
	`|\brouse-[a-z2-7]{30,}\b|\b(chatcmpl|rerank|score|req|resp|msg|call|file|batch|async)[-_][A-Za-z0-9]{16,}\b` +
	`|"(created|created_at|expires_at|completed_at|in_progress_at|finalizing_at)":[0-9]+|"[a-z_]+_ms":[0-9.]+` +
	`|\b[0-9a-f]{32,64}\b|#token=\S+|\brouse (v[0-9]\S*|dev|[0-9a-f]{7,}(-dirty)?)\b|[0-9.]+ tokens/s` +
	`|\b[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4}\b`)

// bars are as long as something took.
var bars = regexp.MustCompile(`[█▏▎▍▌▋▊▉]+`)

// Normal returns a text without what may differ, and without the spaces between columns.
func Normal(text string) string {
	text = differs.ReplaceAllString(text, "•")
	text = strings.ReplaceAll(text, " · queue •", "")           // 0 is not told
	text = strings.ReplaceAll(text, " tokens · •]", " tokens]") // nor is a rate of a few tokens
	text = bars.ReplaceAllString(text, "▮")
	text = regexp.MustCompile(`[ \t]+`).ReplaceAllString(text, " ")
	return regexp.MustCompile(`(?m)(^| )-( |$)`).ReplaceAllString(text, "$1•$2") // a size that is not known yet
}

// Matches reports whether a page matches an output.
func Matches(want, got string) bool {
	if want == "" {
		return got == ""
	}
	pattern := regexp.QuoteMeta(Normal(want))
	pattern = strings.ReplaceAll(pattern, "…\n", "….*\n")
	pattern = regexp.MustCompile(`(?m)^….\*\n`).ReplaceAllString(pattern, "(?:.*\n)*")
	pattern = strings.ReplaceAll(pattern, "….*", ".*")
	pattern = strings.ReplaceAll(pattern, "…", ".*")
	return regexp.MustCompile(`^` + pattern + `$`).MatchString(Normal(got))
}

// merged returns the page's text if it matches the output.
func merged(want, got string) string {
	if Matches(want, got) {
		return want
	}
	return got
}

// want is the output on the page.
type command struct{ line, want string }

func commandsOf(block string) (all []command) {
	for _, line := range strings.SplitAfter(block, "\n") {
		switch c, is := strings.CutPrefix(line, "$ "); {
		case is:
			all = append(all, command{line: strings.TrimSuffix(c, "\n")})
		case len(all) == 0:
		case unfinished(all[len(all)-1]):
			all[len(all)-1].line += "\n" + strings.TrimSuffix(line, "\n")
		default:
			all[len(all)-1].want += line
		}
	}
	return all
}

// unfinished reports whether the next line belongs to the command: after a backslash, in a here-document or a
// quotation.
func unfinished(c command) bool {
	if c.want != "" {
		return false
	}
	return strings.HasSuffix(c.line, `\`) || strings.Contains(c.line, "<<EOF\n") && !strings.HasSuffix(c.line, "\nEOF") ||
		strings.HasSuffix(c.line, "<<EOF") || strings.Count(c.line, "'")%2 == 1
}
