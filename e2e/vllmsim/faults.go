package vllmsim

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Header carries the faults of one request.
const Header = "X-Vllmsim-Fault"

// Faults are what breaks, written KIND[=VALUE][@SKIP][xTIMES]: the first SKIP
// occasions are spared, and it happens TIMES times (default: always). Several
// stand in one text with semicolons between them.
//
// Of requests that generate (also by [Header]):
//
//	hang              accepted, never answered
//	status=N[:BODY]   that status, and that body
//	cut=N             the connection breaks after N tokens
//	eof=N             the stream ends cleanly after N tokens, without finish_reason and [DONE]
//	error-event=N     the stream ends with an error event after N tokens
//	malformed=N       the event after N tokens is not JSON
//	big=BYTES         the first event is that big
//	slow=DURATION     each token takes so much longer
//	garbage           an answer as of a model without weights
//	crash[=HOW]       the process ends: exit status, or SIGKILL, SIGSEGV, SIGABRT
//	crash-after=N     the process is killed after N tokens
//	dead-engine       the engine dies as of an illegal memory access: 500, then exit
//	hang-engine       the engine stops; /health still says 200
//
// Of sleep and wake:
//
//	oom-wake, fail-wake, hang-wake, fail-sleep, hang-sleep
//	garbage-wake      a wake that succeeds, with weights that are none
//	unapplied-wake    a wake that succeeds, after which the model itself answers for its adapters, until they are loaded again
//	garbage-reload    weights that are none stay so when they are read anew
//
// Of the start:
//
//	start=CODE        exits at once
//	exit-after=D      exits with status 1 D after its start
//	never-ready       loads for ever
//	oom-start         too little memory
//	port-taken        says that its port is in use
//
// Of the end: ignore-term, which is deaf to SIGTERM.
//
// The zero value has none. It is safe for many goroutines.
type Faults struct {
	mu   sync.Mutex // guards list
	list []fault
}

type fault struct {
	kind, value string
	skip        int
	times       int // -1: always
	text        string
}

// Which value a kind takes.
type valueOf int

const (
	noValue valueOf = iota
	aNumber
	aDuration
	aStatus
	anExit
)

var (
	requestFaults = map[string]valueOf{
		"hang": noValue, "status": aStatus, "cut": aNumber, "eof": aNumber, "error-event": aNumber, "malformed": aNumber, "big": aNumber,
		"slow": aDuration, "garbage": noValue, "crash": anExit, "crash-after": aNumber, "dead-engine": noValue, "hang-engine": noValue,
	}
	otherFaults = map[string]valueOf{
		"oom-wake": noValue, "fail-wake": noValue, "hang-wake": noValue, "garbage-wake": noValue, "unapplied-wake": noValue, "garbage-reload": noValue, "fail-sleep": noValue, "hang-sleep": noValue,
		"start": anExit, "exit-after": aDuration, "never-ready": noValue, "oom-start": noValue, "port-taken": noValue,
		"ignore-term": noValue,
	}
)

// parseFault reads one fault.
func parseFault(text string) (fault, error) {
	f := fault{text: text, times: -1}
	rest := strings.TrimSpace(text)
	f.kind, f.value, _ = strings.Cut(rest, "=")
	// A body may contain anything: only what follows the last @ or x and is a number counts.
	counted := &f.value
	if f.value == "" {
		counted = &f.kind
	}
	if i := strings.LastIndexByte(*counted, 'x'); i >= 0 && f.known((*counted)[:i]) {
		if n, err := strconv.Atoi((*counted)[i+1:]); err == nil && n >= 0 {
			f.times, *counted = n, strings.TrimSpace((*counted)[:i])
		}
	}
	if i := strings.LastIndexByte(*counted, '@'); i >= 0 {
		if n, err := strconv.Atoi((*counted)[i+1:]); err == nil && n >= 0 {
			f.skip, *counted = n, strings.TrimSpace((*counted)[:i])
		}
	}
	want, found := requestFaults[f.kind]
	if !found {
		want, found = otherFaults[f.kind]
	}
	if !found {
		return f, fmt.Errorf("fault %q: no such kind: see the package's documentation of Faults", text)
	}
	if err := f.check(want); err != nil {
		return f, fmt.Errorf("fault %q: %w", text, err)
	}
	return f, nil
}

// known says whether what precedes an x is complete, so that the x counts times
// and is not a letter of the word.
func (f fault) known(before string) bool {
	if f.value != "" {
		return true
	}
	before, _, _ = strings.Cut(before, "@")
	before = strings.TrimSpace(before)
	_, a := requestFaults[before]
	_, b := otherFaults[before]
	return a || b
}

func (f fault) check(want valueOf) error {
	switch want {
	case noValue:
		if f.value != "" {
			return fmt.Errorf("it takes no value")
		}
	case aNumber:
		if n, err := strconv.Atoi(f.value); err != nil || n < 0 || n > 1<<28 {
			return fmt.Errorf("want a number after =")
		}
	case aDuration:
		if d, err := time.ParseDuration(f.value); err != nil || d < 0 {
			return fmt.Errorf("want a duration such as 50ms after =")
		}
	case aStatus:
		code, _, _ := strings.Cut(f.value, ":")
		if n, err := strconv.Atoi(code); err != nil || n < 200 || n > 599 {
			return fmt.Errorf("want a status such as 503 after =")
		}
	case anExit:
		if _, err := strconv.Atoi(f.value); f.value != "" && err != nil && signals[f.value] == 0 {
			return fmt.Errorf("want an exit status or one of SIGKILL, SIGSEGV, SIGABRT, SIGTERM")
		}
	}
	return nil
}

var signals = map[string]syscall.Signal{"SIGKILL": syscall.SIGKILL, "SIGSEGV": syscall.SIGSEGV, "SIGABRT": syscall.SIGABRT, "SIGTERM": syscall.SIGTERM}

// parseFaults reads a list with semicolons.
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

// List returns those that have not run out, as they were written.
func (f *Faults) List() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	texts := []string{}
	for _, one := range f.list {
		if one.times != 0 {
			texts = append(texts, one.text)
		}
	}
	return texts
}

// take is an occasion for faults of some kinds: it returns those that happen now.
func (f *Faults) take(wanted func(kind string) bool) []fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	return takeFrom(f.list, wanted)
}

func takeFrom(list []fault, wanted func(string) bool) (now []fault) {
	for i := range list {
		one := &list[i]
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

// happens is an occasion for one kind.
func (f *Faults) happens(kind string) (fault, bool) {
	now := f.take(func(k string) bool { return k == kind })
	if len(now) == 0 {
		return fault{}, false
	}
	return now[0], true
}

// ofRequest is the occasion of one request that generates.
func (f *Faults) ofRequest(r *http.Request) (injected, error) {
	isRequest := func(kind string) bool { _, found := requestFaults[kind]; return found }
	own, err := parseFaults(r.Header.Values(Header)...)
	if err != nil {
		return injected{}, err
	}
	return injectedOf(slices.Concat(f.take(isRequest), takeFrom(own, isRequest))), nil
}

// injected are the faults of one request, parsed. A number is -1 where there is none.
type injected struct {
	hang, garbage, deadEngine, hangEngine   bool
	status                                  int
	body                                    string
	cut, eof, errorEvent, malformed, killed int
	big                                     int
	slow                                    time.Duration
	crash                                   *string
}

func injectedOf(list []fault) injected {
	a := injected{cut: -1, eof: -1, errorEvent: -1, malformed: -1, killed: -1}
	for _, f := range list {
		n, _ := strconv.Atoi(f.value) // checked when it was parsed
		switch f.kind {
		case "hang":
			a.hang = true
		case "garbage":
			a.garbage = true
		case "dead-engine":
			a.deadEngine = true
		case "hang-engine":
			a.hangEngine = true
		case "status":
			code, body, _ := strings.Cut(f.value, ":")
			a.status, _ = strconv.Atoi(code)
			a.body = body
		case "cut":
			a.cut = n
		case "eof":
			a.eof = n
		case "error-event":
			a.errorEvent = n
		case "malformed":
			a.malformed = n
		case "crash-after":
			a.killed = n
		case "big":
			a.big = n
		case "slow":
			a.slow, _ = time.ParseDuration(f.value)
		case "crash":
			a.crash = &f.value
		}
	}
	return a
}
