package render

import (
	"encoding/json"
	"fmt"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/rouse-dev/rouse/api"
)

// EventLine formats an event's data in one line; data of another shape is shown as it is.
func EventLine(e api.Event) string {
	switch e.Type {
	case api.EventDemand:
		return lineOf(e.Data, demandLine)
	case api.EventInstanceState:
		return lineOf(e.Data, stateLine)
	case api.EventDecision:
		return lineOf(e.Data, decisionLine)
	case api.EventWoken:
		return lineOf(e.Data, wokenLine)
	case api.EventUsage:
		return lineOf(e.Data, usageLine)
	case api.EventFunction, api.EventFunctionGone:
		return lineOf(e.Data, Source)
	}
	return string(e.Data)
}

// readableEvent returns e with durations as texts. Data of an unknown type or shape stays as it is.
func readableEvent(e api.Event) api.Event {
	var v any
	switch e.Type {
	case api.EventDemand:
		v = new(api.Demand)
	case api.EventInstanceState:
		v = new(api.InstanceStatus)
	case api.EventWoken:
		v = new(api.WakeTrace)
	case api.EventFunction, api.EventFunctionGone:
		v = new(api.Function)
	default:
		return e
	}
	if json.Unmarshal(e.Data, v) == nil {
		if raw, err := jsonv2.Marshal(v, readable); err == nil {
			e.Data = raw
		}
	}
	return e
}

func lineOf[T any](data json.RawMessage, line func(T) string) string {
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		return string(data)
	}
	return OneLine(line(v))
}

func demandLine(d api.Demand) string {
	s := fmt.Sprintf("%d waiting, %d running", d.Waiting, d.Running)
	if d.Waiting > 0 {
		s += fmt.Sprintf(", the oldest for %s", Rounded(d.OldestAge))
	}
	if d.Waking != "" {
		s += fmt.Sprintf(", waking %s", d.Waking)
	}
	return s
}

func usageLine(u api.Usage) string {
	var requests int64
	var input, output api.Tokens
	for _, s := range u.Uses {
		requests, input, output = requests+s.Requests, input+s.Input, output+s.Output
	}
	return fmt.Sprintf("%d requests, %d tokens of input and %d of output since %s began", requests, input, output, u.Activator)
}

func stateLine(s api.InstanceStatus) string {
	words := []string{string(s.Instance), string(s.State)}
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	switch s.State {
	case api.Asleep:
		add("at level %d", s.Level)
	case api.Awake:
		add("(load %s, wake %s)", known(s.LoadTime), known(s.WakeTime))
	}
	if s.Stage != "" {
		add("(%s)", s.Stage)
	}
	if s.Memory.Host > 0 {
		add("with %s", s.Memory.Host)
	}
	if s.Message != "" {
		add("– %s", s.Message)
	}
	return strings.Join(words, " ")
}

func wokenLine(o api.WakeTrace) string {
	s := fmt.Sprintf("%s answered %s after the request came", o.Instance, Rounded(o.Total))
	if o.By == api.PartActivator {
		s += ", woken by the activator"
	}
	return s
}

func decisionLine(d api.Decision) string {
	s := d.Action
	if d.Instance != "" {
		s += " " + string(d.Instance)
	}
	s += ": " + d.Reason
	if d.Error != "" {
		s += "; failed: " + d.Error
	}
	return s
}
