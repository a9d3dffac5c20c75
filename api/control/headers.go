package control

import (
	"net/http"
	"slices"
	"strings"
)

// HeaderTenant says whose a request is. A client's own counts only from a peer that is
// trusted with it; the activator tells the instance, and the instance a runtime of ours.
const HeaderTenant = "X-Rouse-Tenant"

// HeaderTrusted says that the priority in a request's body counts: whoever sent it is
// trusted with it. Only the activator says so.
const HeaderTrusted = "X-Rouse-Trusted"

// HeaderState asks a runtime that can go on with a stream of another instance for the stream's state, or
// has it. Only the activator says so. Its value is [StateNew], or the pieces of a state in their order, with semicolons
// between them. Of each event of such a stream the state is a comment in front of it, a line that begins with [StateComment].
// An instance that gives way ends such a stream with [MovedComment]: the connection's end behind it is no failure.
// [StateScores] in front of all has the state say the log probabilities of its tokens too, for events that come again with theirs.
// Of a request that is no stream the header says that it can be tried again whole.
const (
	HeaderState  = "X-Rouse-Stream-State"
	StateNew     = "new"
	StateComment = ": rouse-state "
	StateReplay  = "replay:" // before a state: the events that it stands for are to come again
	StateScores  = "scores:" // before these: with log probabilities
	MovedComment = ": rouse-moved"
)

// KnownState says whether a value of [HeaderState] has a state to go on from: whoever can't must refuse, as the client has a part of the answer.
func KnownState(value string) bool {
	return value != "" && strings.TrimPrefix(value, StateScores) != StateNew
}

// HeaderModels are the models and adapters that the requests in a call of /invocations may name, one a value, where its client may not
// use all. Only the activator says so.
const HeaderModels = "X-Rouse-Models"

// HeaderUsage asks an instance to say what an answer has used, whether its client has asked for that or not. Only the activator says so.
// In a stream the instance says it in comments, lines that begin with [UsageComment], of an answer that is none in the same header. Both
// have the tokens of the prompt, those of them that were in the cache, and those generated so far, with spaces between them.
const (
	HeaderUsage  = "X-Rouse-Usage"
	UsageComment = ": rouse-usage "
)

// HeaderResume is the client's: with the value "off" a stream ends with an error where its instance ends.
const HeaderResume = "X-Rouse-Resume"

// reservedPrefixes begin the names of headers by which Rouse, Knative and CloudEvents
// speak for themselves, as they are written canonically.
var reservedPrefixes = [...]string{"X-Rouse-", "K-", "Knative-", "Ce-"}

// headerTiming is what Rouse says of an answer's time, and nobody else.
const headerTiming = "Server-Timing"

// Reserved says whether a header, its name written canonically, is ours to set: from
// clients and from runtimes it is dropped.
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

// Credential says whether a header, its name written canonically, proves to a server who
// its client is, so that who reads it can act as the client.
func Credential(name string) bool {
	switch dashed(name) {
	case "Authorization", "Cookie", "X-Api-Key", "Api-Key", "X-Goog-Api-Key":
		return true
	}
	return false
}

// Forwarded says whether a header, its name written canonically, says by which way a request came and who its client is.
// That is for proxies, and for servers of the user's own.
func Forwarded(name string) bool {
	name = dashed(name)
	switch name {
	case "Forwarded", "Via", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip":
		return true
	}
	return strings.HasPrefix(name, "X-Forwarded-")
}

// answered are the headers of a model server's answer that its client gets.
var answered = map[string]bool{
	"Cache-Control": true, "Content-Disposition": true, "Content-Encoding": true, "Content-Language": true, "Content-Length": true, "Content-Range": true, "Content-Type": true,
	"Date": true, "Etag": true, "Last-Modified": true, "Retry-After": true, "Trailer": true, "Vary": true, "Request-Id": true,
}

// directing begin the names of headers that are none of the standard and that proxies or browsers obey.
var directing = [...]string{"X-Accel-", "X-Sendfile", "X-Lighttpd-", "X-Reproxy-", "X-Permitted-Cross-Domain-Policies"}

// Answered says whether a header of a model server's answer, its name written canonically, is for its client. Others, such as
// cookies, and what browsers take for the word of the host that they asked, would be the front door's own there.
func Answered(name string) bool {
	begins := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	return answered[name] || begins("Openai-") || begins("Anthropic-") || begins("X-") && !slices.ContainsFunc(directing[:], begins)
}

// dashed is name as servers read it that know no difference between _ and -, as those behind CGI and WSGI.
func dashed(name string) string {
	if strings.IndexByte(name, '_') < 0 {
		return name
	}
	return http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
}
