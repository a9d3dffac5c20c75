package constrain

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

type draft int

const (
	draft4 draft = 4 + iota
	_
	draft6
	draft7
	draft2019
	draft2020
)

// drafts are by $schema without its scheme and a trailing #.
var drafts = map[string]draft{
	"json-schema.org/draft-04/schema":      draft4,
	"json-schema.org/draft-05/schema":      draft4,
	"json-schema.org/draft-06/schema":      draft6,
	"json-schema.org/draft-07/schema":      draft7,
	"json-schema.org/draft/2019-09/schema": draft2019,
	"json-schema.org/draft/2020-12/schema": draft2020,
	"json-schema.org/schema":               draft2020,
}

type resource struct {
	root  any
	draft draft
}

// Addresses are URIs without a fragment.
type references struct {
	base    map[*object]string  // of a schema's resource
	known   map[string]resource // by address
	anchors map[string]any      // by address, # and name
}

const noBase = "rouse:/schema"

// The keywords that hold schemas: one, a list, or by name.
var (
	holdSchema = strings.Fields(`
	additionalItems additionalProperties contains else if items not propertyNames then unevaluatedItems
	unevaluatedProperties`)
	holdList    = strings.Fields(`allOf anyOf oneOf prefixItems items`)
	holdMembers = strings.Fields(`$defs definitions properties patternProperties dependentSchemas dependencies`)
)

func (c *schemaReader) index() {
	c.refs = references{base: map[*object]string{}, known: map[string]resource{}, anchors: map[string]any{}}
	d := draft2020
	if o, ok := c.root.(*object); ok {
		if text, isText := o.get("$schema").(string); isText {
			d = c.draft(text)
		}
	}
	c.refs.known[noBase] = resource{c.root, d}
	c.indexIn(c.root, noBase, d)
}

func (c *schemaReader) indexIn(schema any, base string, d draft) {
	o, ok := schema.(*object)
	if !ok || !c.meter.spend(1, exprSize) {
		return
	}
	if text, isText := o.get("$schema").(string); isText {
		d = c.draft(text)
	}
	id := "$id"
	if d == draft4 {
		id = "id"
	}
	// Before 2019 keywords next to $ref were ignored.
	if text, isText := o.get(id).(string); isText && (d >= draft2019 || !o.has("$ref")) {
		address, anchor, _ := strings.Cut(join(base, text), "#")
		if anchor != "" {
			c.refs.anchors[address+"#"+anchor] = o
		}
		if _, there := c.refs.known[address]; address != base && there {
			c.fail("two schemas have the %s %s", id, clip(text))
		}
		base = address
		if anchor == "" {
			c.refs.known[base] = resource{o, d}
		}
	}
	for _, keyword := range []string{"$anchor", "$dynamicAnchor"} {
		if text, isText := o.get(keyword).(string); isText {
			c.refs.anchors[base+"#"+text] = o
		}
	}
	c.refs.base[o] = base
	for _, keyword := range o.keys {
		switch v := o.values[keyword].(type) {
		case []any:
			for _, s := range v {
				if slices.Contains(holdList, keyword) {
					c.indexIn(s, base, d)
				}
			}
		case *object:
			if slices.Contains(holdSchema, keyword) {
				c.indexIn(v, base, d)
			}
			for _, k := range v.keys {
				if slices.Contains(holdMembers, keyword) {
					c.indexIn(v.values[k], base, d)
				}
			}
		}
	}
}

func (c *schemaReader) draft(text string) draft {
	name := strings.TrimSuffix(strings.TrimSuffix(text, "#"), "/")
	name = strings.TrimPrefix(strings.TrimPrefix(name, "http://"), "https://")
	d, ok := drafts[name]
	if !ok {
		c.fail("$schema of the schema is %s: want one of the drafts 4, 6, 7, 2019-09 and 2020-12, or none", clip(text))
		return draft2020
	}
	return d
}

func join(base, ref string) string {
	b, err := url.Parse(base)
	if err != nil {
		return ref
	}
	r, err := url.Parse(ref)
	if err != nil {
		return ref
	}
	return b.ResolveReference(r).String()
}

func (c *schemaReader) resolve(from *object, ref any) any {
	text, ok := ref.(string)
	if !ok {
		c.fail("$ref of the schema is no string")
		return false
	}
	base, ok := c.refs.base[from]
	if !ok {
		base = noBase // a place where no schema is expected, and none has an address
		c.indexIn(from, base, c.refs.known[noBase].draft)
	}
	address, fragment, _ := strings.Cut(join(base, text), "#")
	if strings.HasPrefix(text, "#") {
		address = base
	}
	if decoded, err := url.PathUnescape(fragment); err == nil {
		fragment = decoded
	}
	to, ok := c.refs.known[address]
	if at, there := c.refs.anchors[address+"#"+fragment]; there {
		return at
	}
	if !ok || fragment != "" && !strings.HasPrefix(fragment, "/") {
		c.fail("$ref of the schema is %s: want a JSON pointer or an anchor within the same schema, like #/$defs/name", clip(text))
		return false
	}
	at, ok := follow(to.root, fragment)
	if !ok {
		c.fail("$ref of the schema is %s, which does not exist", clip(text))
		return false
	}
	if o, isObject := at.(*object); isObject {
		if _, seen := c.refs.base[o]; !seen {
			c.indexIn(o, address, to.draft)
		}
	}
	return at
}

func follow(at any, pointer string) (any, bool) {
	if pointer == "" {
		return at, true
	}
	for step := range strings.SplitSeq(pointer[1:], "/") {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		switch v := at.(type) {
		case *object:
			next, ok := v.values[step]
			if !ok {
				return nil, false
			}
			at = next
		case []any:
			n, err := strconv.Atoi(step)
			if err != nil || n < 0 || n >= len(v) {
				return nil, false
			}
			at = v[n]
		default:
			return nil, false
		}
	}
	return at, true
}
