// Package cloudevent writes and reads [api.Event] as CloudEvents 1.0 in the HTTP binding. It is the only package that
// imports the CloudEvents SDK.
package cloudevent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/rouse-dev/rouse/api"
)

// MaxSize bounds a received event.
const MaxSize = 1 << 20

// Encode returns e in the structured JSON form.
func Encode(e api.Event) ([]byte, error) {
	sdk := toSDK(e)
	raw, err := json.Marshal(sdk)
	if err != nil {
		return nil, fmt.Errorf("encode event %s: %w", e.ID, err)
	}
	return raw, nil
}

// Decode parses the structured JSON form.
func Decode(raw []byte) (api.Event, error) {
	var sdk event.Event
	if err := json.Unmarshal(raw, &sdk); err != nil {
		return api.Event{}, fmt.Errorf("decode event: %w", err)
	}
	return fromSDK(sdk)
}

// NewRequest returns a POST of e to url in the binary content mode.
func NewRequest(ctx context.Context, url string, e api.Event, o Overrides) (*http.Request, error) {
	sdk := toSDK(e)
	for name, value := range o.Extensions {
		sdk.SetExtension(name, value)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return nil, fmt.Errorf("send event to %s: %w", url, err)
	}
	if err := cehttp.WriteRequest(binding.WithForceBinary(ctx), binding.ToMessage(&sdk), req); err != nil {
		return nil, fmt.Errorf("send event to %s: %w", url, err)
	}
	return req, nil
}

// Receive reads the event in a request of either content mode. Errors are *[api.Error] with status 400 or 413.
func Receive(r *http.Request) (api.Event, error) {
	raw, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, MaxSize))
	if tooLarge, is := errors.AsType[*http.MaxBytesError](err); is { // of MaxSize, or the server's own limit
		return api.Event{}, api.Errorf(http.StatusRequestEntityTooLarge, api.CodeTooLarge, "the event is larger than %s", api.Bytes(tooLarge.Limit))
	}
	if err != nil {
		return api.Event{}, api.BadRequest("", "read the event: %v", err)
	}
	msg := cehttp.NewMessage(r.Header, io.NopCloser(bytes.NewReader(raw)))
	if msg.ReadEncoding() == binding.EncodingUnknown {
		return api.Event{}, api.BadRequest("", "the request is not a CloudEvent: want the header ce-specversion, or Content-Type application/cloudevents+json")
	}
	sdk, err := binding.ToEvent(r.Context(), msg)
	if err != nil {
		return api.Event{}, api.BadRequest("", "the request is not a CloudEvent: %v", err)
	}
	if err := sdk.Validate(); err != nil {
		return api.Event{}, api.BadRequest("", "the CloudEvent is not valid: %v", err)
	}
	e, err := fromSDK(*sdk)
	if err != nil {
		return api.Event{}, api.BadRequest("data", "%v", err)
	}
	return e, nil
}

func toSDK(e api.Event) event.Event {
	sdk := event.New()
	sdk.SetID(e.ID)
	sdk.SetSource(e.Source)
	sdk.SetType(e.Type)
	if e.Subject != "" {
		sdk.SetSubject(e.Subject)
	}
	if !e.Time.IsZero() {
		sdk.SetTime(e.Time)
	}
	sdk.SetDataContentType(event.ApplicationJSON)
	sdk.DataEncoded = e.Data
	return sdk
}

func fromSDK(sdk event.Event) (api.Event, error) {
	e := api.Event{ID: sdk.ID(), Source: sdk.Source(), Type: sdk.Type(), Subject: sdk.Subject(), Time: sdk.Time()}
	data := sdk.Data()
	if len(data) > 0 && !json.Valid(data) {
		return api.Event{}, fmt.Errorf("event %s of type %s: data is not JSON", sdk.ID(), sdk.Type())
	}
	e.Data = append(json.RawMessage(nil), data...)
	return e, nil
}
