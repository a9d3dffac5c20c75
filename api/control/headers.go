package control

import (
	"net/http"
	"slices"
	"strings"
)

// HeaderTenant is the tenant of a request. A value from a client counts only if the peer is trusted with it. The
// activator sends it to the instance, and the instance to a runtime of ours.
const HeaderTenant = "X-Rouse-Tenant"

// HeaderTrusted means that the priority in a request's body counts because its sender is trusted. Only the activator
// sets it.
const HeaderTrusted = "X-Rouse-Trusted"

// HeaderState asks a runtime for the state of a stream, from which another instance can continue it, or carries such
// a state. Only the activator sets it. Its value is [StateNew] or the pieces of a state in order, separated by
// semicolons.
//
// The runtime writes the state of each event as a comment before it, a line that begins with [StateComment]. A
// draining instance ends such a stream with [MovedComment]; the end of the connection after it is no failure. A
// leading [StateScores] asks for the tokens' log probabilities in the state, for events that are replayed with
// theirs. On a request that does not stream, the header means that the whole request can be retried.
const (
	HeaderState  = "X-Rouse-Stream-State"
	StateNew     = "new"
	StateComment = ": rouse-state "
	StateReplay  = "replay:" // before a state: replay the events that it stands for
	StateScores  = "scores:" // before these: with log probabilities
	MovedComment = ": rouse-moved"
)

// KnownState reports whether a value of [HeaderState] contains a state to continue from. A runtime that cannot
// continue must refuse then, as the client has received a part of the answer.
func KnownState(value string) bool {
	return value != "" && strings.TrimPrefix(value, StateScores) != StateNew
}

// HeaderModels lists the models and adapters that requests in a call of /invocations may name, one per value, if its
// client may not use all. Only the activator sets it.
const HeaderModels = "X-Rouse-Models"

// HeaderUsage asks an instance to report what an answer used, even if its client did not ask. Only the activator sets
// it. In a stream the instance reports it in comments, lines that begin with [UsageComment]; otherwise in the same
// header. Both have three numbers separated by spaces: the tokens of the prompt, those of them from the cache, and
// the tokens generated so far. An instance whose client left before the answer reports them with status 499.
const (
	HeaderUsage  = "X-Rouse-Usage"
	UsageComment = ": rouse-usage "
)

// HeaderResume is set by clients: with the value "off", a stream ends with an error if its instance ends.
const HeaderResume = "X-Rouse-Resume"

// reservedPrefixes are the prefixes, in canonical form, of headers that Rouse, Knative and CloudEvents set
// themselves.
var reservedPrefixes = [...]string{"X-Rouse-", "K-", "Knative-", "Ce-"}

// headerTiming is a header that only Rouse sets in answers.
const headerTiming = "Server-Timing"

// Reserved reports whether only Rouse sets a header, given its canonical name: it is dropped from requests of clients
// and answers of runtimes.
func Reserved(name string) bool {
	name = dashed(name)
	switch name[:min(len(name), 1)] {
	case "X", "K", "C":
		for _, prefix := range reservedPrefixes {
			if strings.HasPrefix(name, prefix) {
				return true
			}
		}
	case "S":
		return name == headerTiming
	}
	return false
}

// Credential reports whether a header, given its canonical name, authenticates the client, so that its reader can act
// as the client.
func Credential(name string) bool {
	switch dashed(name) {
	case "Authorization", "Cookie", "X-Api-Key", "Api-Key", "X-Goog-Api-Key":
		return true
	}
	return false
}

// Forwarded reports whether a header, given its canonical name, describes a request's route and client, for proxies
// and for the user's own servers.
func Forwarded(name string) bool {
	name = dashed(name)
	switch name {
	case "Forwarded", "Via", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip":
		return true
	}
	return strings.HasPrefix(name, "X-Forwarded-")
}

// answered are the headers of a model server's answer that reach the client.
var answered = map[string]bool{
	"Cache-Control": true, "Content-Disposition": true, "Content-Encoding": true, "Content-Language": true, "Content-Length": true, "Content-Range": true, "Content-Type": true,
	"Date": true, "Etag": true, "Last-Modified": true, "Retry-After": true, "Trailer": true, "Vary": true, "Request-Id": true,
}

// directing are prefixes of nonstandard headers that proxies or browsers obey.
var directing = [...]string{"X-Accel-", "X-Sendfile", "X-Lighttpd-", "X-Reproxy-", "X-Permitted-Cross-Domain-Policies"}

// Answered reports whether a header of a model server's answer, given its canonical name, may reach the client.
// Others, such as cookies and headers that browsers attribute to the host, would appear as the front door's own.
func Answered(name string) bool {
	begins := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	return answered[name] || begins("Openai-") || begins("Anthropic-") || begins("X-") && !slices.ContainsFunc(directing[:], begins)
}

// dashed returns name as read by servers that do not distinguish _ and -, such as those behind CGI and WSGI.
func dashed(name string) string {
	if strings.IndexByte(name, '_') < 0 {
		return name
	}
	return http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
}
