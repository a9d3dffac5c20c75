package runtime

import (
	_ "embed"
	"errors"
	"io/fs"
	"net/http"
	"strings"
)

//go:embed hopeless.txt
var hopeless string

// unreadable is Ollama's answer about a file whose format it can't read; the reason is in its log. A runner of Ollama's logs the same if
// a model does not fit into memory, but does not answer so.
const unreadable = "unable to load model: "

// Hopeless returns the first line of a model server's output about a failure that recurs at every start, such as an unusable model;
// empty: there is none.
func Hopeless(output string) string { return saying(output, hopeless) }

// tooSlow is Ray's message, in lower case, when its own start takes more than half a minute. No setting of Ray changes that limit.
const tooSlow = "the current node timed out during startup"

// TooSlow reports whether a server gave up its start because the machine is busy.
func TooSlow(output string) bool { return saying(output, tooSlow) != "" }

// saying returns the first line that has all parts of one of the messages, which are a line each, with … between parts. A line with # is a
// remark.
func saying(output, messages string) string {
	all := strings.Split(strings.TrimSpace(messages), "\n")
	for line := range strings.Lines(output) {
		for _, message := range all {
			if message != "" && message[0] != '#' && inOrder(strings.ToLower(line), message) {
				return strings.TrimSpace(line)
			}
		}
	}
	return ""
}

func inOrder(line, message string) bool {
	for part := range strings.SplitSeq(message, " … ") {
		_, rest, found := strings.Cut(line, part)
		if !found {
			return false
		}
		line = rest
	}
	return true
}

// Permanent reports whether the answer is about a failure that recurs at every start.
func (e *statusError) Permanent() bool {
	return strings.HasPrefix(e.message, unreadable) || Hopeless(e.message) != ""
}

// Permanent reports whether err, or one that it wraps, says that another attempt fails too.
func Permanent(err error) bool {
	var p interface{ Permanent() bool }
	return errors.As(err, &p) && p.Permanent()
}

// engineDead is vLLM's answer once its engine has died, in lower case; vLLM ends some seconds later.
const engineDead = "enginecore encountered an issue"

// Dying reports whether the server is about to end; until then all its answers are the same.
func (e *statusError) Dying() bool {
	return e.status == http.StatusInternalServerError && strings.Contains(strings.ToLower(e.message), engineDead)
}

// Dying reports whether err, or one that it wraps, is a dying server's answer.
func Dying(err error) bool {
	var d interface{ Dying() bool }
	return errors.As(err, &d) && d.Dying()
}

// lasting is an error that recurs at every attempt.
type lasting struct{ error }

// Unwrap returns the error.
func (e lasting) Unwrap() error { return e.error }

// Permanent returns true.
func (e lasting) Permanent() bool { return true }

// unusable marks an error of a declared model as permanent, unless the system failed to read an existing file.
func unusable(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return lasting{err}
}
