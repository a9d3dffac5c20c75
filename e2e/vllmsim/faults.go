package vllmsim

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Header carries the faults of one request.
const Header = "X-Vllmsim-Fault"

// Faults is a list of faults to inject, written KIND[=VALUE][@SKIP][xTIMES] and separated by semicolons: each spares
// the first SKIP occasions and then happens TIMES times (default: always). The kinds are at requestFaults and
// otherFaults. It is safe for concurrent use.
type Faults struct {
	mu   sync.Mutex // guards list
	list []fault
}

type fault struct {
	kind, value string
	skip        int
	times       int // -1: always
}

type valueOf int

const (
	noValue valueOf = iota
	aNumber
	aDuration
)

// requestFaults are the faults of requests that generate, which [Header] may also set:
//
//	status=N          the answer has that status
//	cut=N             the connection breaks after N tokens
//	eof=N             the stream ends cleanly after N tokens, without finish_reason and [DONE]
//	error-event=N     the stream ends with an error event after N tokens
//	slow=DURATION     each token takes that much longer
//	crash-after=N     the process is killed after N tokens
var requestFaults = map[string]valueOf{"status": aNumber, "cut": aNumber, "eof": aNumber, "error-event": aNumber, "slow": aDuration, "crash-after": aNumber}

// otherFaults are the faults of sleep and wake:
//
//	hang-wake         a wake never returns
//	garbage-wake      a wake succeeds, with invalid weights
//	unapplied-wake    a wake succeeds, but the model itself answers for its adapters until they are loaded again
//	garbage-reload    invalid weights stay invalid when they are loaded again
var otherFaults = map[string]valueOf{"hang-wake": noValue, "garbage-wake": noValue, "unapplied-wake": noValue, "garbage-reload": noValue}

var faultForm = regexp.MustCompile(`^([a-z-]+?)(?:=([0-9a-z.µ]+?))?(?:@(\d+))? ?(?:x(\d+))?$`)

func parseFault(text string) (fault, error) {
	m := faultForm.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return fault{}, fmt.Errorf("fault %q: want KIND[=VALUE][@SKIP][xTIMES]", text)
	}
	f := fault{kind: m[1], value: m[2], times: -1}
	want, found := requestFaults[f.kind]
	if !found {
		want, found = otherFaults[f.kind]
	}
	var err error
	switch n, notNumber := strconv.Atoi(f.value); {
	case !found:
		return f, fmt.Errorf("fault %q: no such kind: see the package's documentation of Faults", text)
	case want == noValue && f.value != "":
		return f, fmt.Errorf("fault %q: it takes no value", text)
	case want == aNumber && (notNumber != nil || f.kind == "status" && (n < 200 || n > 599)):
		return f, fmt.Errorf("fault %q: want a number after =, of a status 200 to 599", text)
	case want == aDuration:
		_, err = time.ParseDuration(f.value)
	}
	if m[3] != "" && err == nil {
		f.skip, err = strconv.Atoi(m[3])
	}
	if m[4] != "" && err == nil {
		f.times, err = strconv.Atoi(m[4])
	}
	if err != nil {
		return f, fmt.Errorf("fault %q: %w", text, err)
	}
	return f, nil
}

func parseFaults(texts ...string) ([]fault, error) {
	var all []fault
	for _, t := range texts {
		for _, one := range strings.Split(t, ";") {
			if strings.TrimSpace(one) == "" {
				continue
			}
			f, err := parseFault(one)
			if err != nil {
				return nil, err
			}
			all = append(all, f)
		}
	}
	return all, nil
}

// Set replaces all faults. On an error none changes.
func (f *Faults) Set(texts ...string) error {
	list, err := parseFaults(texts...)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = list
	return nil
}

// take is an occasion for some kinds, and returns the faults that happen now.
func (f *Faults) take(wanted func(kind string) bool) (now []fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.list {
		one := &f.list[i]
		if !wanted(one.kind) || one.times == 0 {
			continue
		}
		if one.skip > 0 {
			one.skip--
			continue
		}
		if one.times > 0 {
			one.times--
		}
		now = append(now, *one)
	}
	return now
}

func (f *Faults) happens(kind string) bool {
	return len(f.take(func(k string) bool { return k == kind })) > 0
}

func (f *Faults) ofRequest(r *http.Request) (injected, error) {
	isRequest := func(kind string) bool { _, found := requestFaults[kind]; return found }
	var own Faults
	if err := own.Set(r.Header.Values(Header)...); err != nil {
		return injected{}, err
	}
	return injectedOf(slices.Concat(f.take(isRequest), own.take(isRequest))), nil
}

// Numbers are -1 without a fault.
type injected struct {
	status                       int
	cut, eof, errorEvent, killed int
	slow                         time.Duration
}

func injectedOf(list []fault) injected {
	a := injected{cut: -1, eof: -1, errorEvent: -1, killed: -1}
	for _, f := range list {
		n, _ := strconv.Atoi(f.value) // checked when it was parsed
		switch f.kind {
		case "status":
			a.status = n
		case "cut":
			a.cut = n
		case "eof":
			a.eof = n
		case "error-event":
			a.errorEvent = n
		case "crash-after":
			a.killed = n
		case "slow":
			a.slow, _ = time.ParseDuration(f.value)
		}
	}
	return a
}
