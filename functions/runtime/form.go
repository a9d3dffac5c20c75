package runtime

import (
	"bytes"
	"mime"
	"net/textproto"
	"strings"
)

// isForm reports whether a body is a multipart form (RFC 7578): no JSON begins with two dashes.
func isForm(body []byte) bool { return bytes.HasPrefix(body, []byte("--")) }

// setInForm replaces the values of a field of a multipart form by change's results, and copies the rest byte for byte. It returns
// anything but a form unchanged.
func setInForm(body []byte, name string, change func(string) string) []byte {
	first, _, found := bytes.Cut(body, []byte("\r\n"))
	if !found {
		return body
	}
	between := append([]byte("\r\n"), first...)
	var out []byte // what comes before done, changed; nil: nothing was
	done := 0
	for at := len(first) + len("\r\n"); at < len(body); {
		end := bytes.Index(body[at:], between)
		if end < 0 {
			break // the form is cut; its reader reports that
		}
		end += at
		if from := partValue(body[at:end], name); from >= 0 {
			old := string(body[at+from : end])
			if fresh := change(old); fresh != old {
				out = append(append(out, body[done:at+from]...), fresh...)
				done = end
			}
		}
		at = end + len(between)
		if rest := body[at:]; bytes.HasPrefix(rest, []byte("--")) || !bytes.HasPrefix(rest, []byte("\r\n")) {
			break // the last part
		}
		at += len("\r\n")
	}
	if out == nil {
		return body
	}
	return append(out, body[done:]...)
}

// partValue returns where the value begins in a form part that is the named field, or -1 for other parts.
func partValue(part []byte, name string) int {
	head, _, found := bytes.Cut(part, []byte("\r\n\r\n"))
	if !found {
		return -1
	}
	for line := range strings.SplitSeq(string(head), "\r\n") {
		key, value, _ := strings.Cut(line, ":")
		if textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(key)) != "Content-Disposition" {
			continue
		}
		kind, params, err := mime.ParseMediaType(value)
		if _, file := params["filename"]; err == nil && kind == "form-data" && params["name"] == name && !file {
			return len(head) + len("\r\n\r\n")
		}
	}
	return -1
}
