package cloudevent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/rouse-dev/rouse/api"
)

// Overrides modify events on their way to a sink, as Knative's SinkBinding asks for in K_CE_OVERRIDES.
type Overrides struct {
	Extensions map[string]string `json:"extensions"`
}

// ParseOverrides takes an empty text for the zero value, and ignores unknown fields: Knative may add some.
func ParseOverrides(text string) (Overrides, error) {
	var o Overrides
	if strings.TrimSpace(text) == "" {
		return o, nil
	}
	d := json.NewDecoder(strings.NewReader(text))
	if err := d.Decode(&o); err != nil {
		return Overrides{}, fmt.Errorf(`K_CE_OVERRIDES: %w: want {"extensions":{"name":"value"}}`, api.Explain(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Overrides{}, errors.New(`K_CE_OVERRIDES: there is text behind the JSON: want {"extensions":{"name":"value"}} alone`)
	}
	for name, value := range o.Extensions {
		if err := extensionName(name); err != nil {
			return Overrides{}, err
		}
		if strings.ContainsFunc(value, unicode.IsControl) { // headers cannot contain them
			return Overrides{}, fmt.Errorf("K_CE_OVERRIDES: the value of the extension %q is %q: want it without line breaks and other control characters", name, value)
		}
	}
	return o, nil
}

// extensionName rejects what would replace an attribute of the event.
func extensionName(name string) error {
	valid := name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
	switch name {
	case "id", "source", "type", "subject", "time", "specversion", "datacontenttype", "dataschema", "data":
		valid = false
	}
	if !valid {
		return fmt.Errorf("K_CE_OVERRIDES: %q can't be the name of an extension: want lower-case letters and digits, and none of the attributes of every event", name)
	}
	return nil
}
