package constrain

import "slices"

// members collects the keywords of an object's schemas about its members.
type members struct {
	sources            []source
	layers             []layer
	order              []string // names of properties, as they come
	known              map[string]bool
	required           []string
	requires           map[string]bool
	patterns           []string
	names              []any // schemas of all names
	declared           bool  // there is a list of properties
	open, closed       bool  // others are allowed, are forbidden
	minProps, maxProps int   // maxProps -1: no limit
}

// source is the keywords of one schema about names.
type source struct {
	o, patterns *object // schemas by name, by pattern; may be nil
}

// layer is a schema for all names that some parts do not know: additionalProperties or unevaluatedProperties.
type layer struct {
	sources []source
	rest    any
}

// free reports whether no keyword restricts members.
func (m *members) free() bool {
	return len(m.sources) == 0 && len(m.layers) == 0 && len(m.required) == 0 && m.names == nil && m.minProps == 0 && m.maxProps < 0
}

func (m *members) add(s source) {
	m.sources = append(m.sources, s)
	if s.o != nil {
		m.declared = true
		for _, name := range s.o.keys {
			m.name(name)
		}
	}
	if s.patterns != nil {
		for _, p := range s.patterns.keys {
			if !slices.Contains(m.patterns, p) {
				m.patterns = append(m.patterns, p)
			}
		}
	}
}

func (m *members) name(name string) {
	if !m.known[name] {
		m.known[name] = true
		m.order = append(m.order, name)
	}
}

func (m *members) cover(l layer) {
	m.layers = append(m.layers, l)
	m.open = m.open || l.rest != false
	m.closed = m.closed || l.rest == false
}

// byPattern returns the schemas of a pattern.
func (m *members) byPattern(text string) (schemas []any) {
	for _, s := range m.sources {
		if s.patterns != nil && s.patterns.has(text) {
			schemas = append(schemas, s.patterns.get(text))
		}
	}
	return schemas
}
