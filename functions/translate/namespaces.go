package translate

import (
	"encoding/json"

	"github.com/rouse-dev/rouse/api"
)

// tool is one of a request for a response: a function, or a namespace of some.
type tool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description json.RawMessage `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      json.RawMessage `json:"strict"`
	Tools       []tool          `json:"tools"`
}

// called is the name of a function, and of the namespace that it is in; empty: it is in none.
type called struct{ Type, Name, Namespace string }

// whole is the name that a chat completion knows the function by: it has no namespaces.
func (c called) whole() string {
	if c.Namespace == "" {
		return c.Name
	}
	return c.Namespace + "__" + c.Name
}

// flat are the functions of tools that spaces has looked at, those of namespaces by their whole names.
func flat(tools []tool) []tool {
	var out []tool
	for _, t := range tools {
		if t.Type == "function" {
			out = append(out, t)
			continue
		}
		for _, f := range t.Tools {
			f.Name = called{Name: f.Name, Namespace: t.Name}.whole()
			out = append(out, f)
		}
	}
	return out
}

// spaces are the functions of namespaces among a request's tools, by their whole names. Tools that are no functions are refused, and
// names that two have.
func spaces(in object) (map[string]called, error) {
	if !in.has("tools") {
		return nil, nil
	}
	var list []tool
	if err := json.Unmarshal(in["tools"], &list); err != nil {
		return nil, wrongType("tools", err)
	}
	names := map[string]called{}
	add := func(c called) error {
		if _, found := names[c.whole()]; found {
			return api.BadRequest("tools", "two tools are called %.100q", c.whole())
		}
		names[c.whole()] = c
		return nil
	}
	for i, t := range list {
		switch t.Type {
		case "function":
			if err := add(called{Name: t.Name}); err != nil {
				return nil, err
			}
		case "namespace":
			for k, f := range t.Tools {
				if f.Type != "function" {
					return nil, api.BadRequest("tools", "tools[%d].tools[%d] is of the type %.40q: only functions can be kept", i, k, f.Type)
				}
				if err := add(called{Name: f.Name, Namespace: t.Name}); err != nil {
					return nil, err
				}
			}
		case "custom":
			return nil, api.BadRequest("tools", "tools[%d] is a custom tool, whose input is free text: only functions can be kept, make it a function with one parameter", i)
		default:
			return nil, api.BadRequest("tools", "tools[%d] is of the type %.40q, which OpenAI runs itself: only functions and namespaces of them can be kept, leave it out", i, t.Type)
		}
	}
	return names, nil
}
