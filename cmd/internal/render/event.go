package render

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

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

// readable returns e with durations as texts, as everywhere in the output. Data of an unknown type or shape stays as it
// is.
func readable(e api.Event) api.Event {
	switch e.Type {
	case api.EventDemand:
		e.Data = readableAs[api.Demand](e.Data)
	case api.EventInstanceState:
		e.Data = readableAs[api.InstanceStatus](e.Data)
	case api.EventWoken:
		e.Data = readableAs[api.WakeTrace](e.Data)
	case api.EventFunction, api.EventFunctionGone:
		e.Data = readableAs[api.Function](e.Data)
	}
	return e
}

func readableAs[T any](data json.RawMessage) json.RawMessage {
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		return data
	}
	raw, err := json.Marshal(human(reflect.ValueOf(v)))
	if err != nil {
		return data
	}
	return raw
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

// stateLine leaves out what is unknown or does not belong to the state.
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
