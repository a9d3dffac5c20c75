package constrain

import (
	"slices"
	"sort"
	"strings"
	"unicode/utf8"
)

// formats are patterns of string formats; "" allows any text. They are narrower than their standards where those
// allow unusual texts, or where readers differ.
var formats = map[string]string{
	"date":      datePattern,
	"time":      timePattern,
	"date-time": dateTimePattern,
	"duration":  durationPattern,
	"period":    dateTimePattern + `/` + dateTimePattern,

	"email":     emailPattern,
	"idn-email": emailPattern,

	"hostname":     hostPattern,
	"host-name":    hostPattern,
	"idn-hostname": hostPattern,
	"ipv4":         ipv4Pattern,
	"ip-address":   ipv4Pattern,
	"ipv6":         `([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}|([0-9a-f]{1,4}:){1,6}:[0-9a-f]{1,4}|::([0-9a-f]{1,4})?`,

	"uri":           uriPattern,
	"url":           `https?://(` + labelPattern + `\.){1,4}[a-z]{2,10}(:[1-9]\d{1,3})?(/[A-Za-z0-9._~-]{0,60}){0,10}`,
	"iri":           uriPattern,
	"uri-reference": uriPattern + `|` + pathPattern,
	"iri-reference": uriPattern + `|` + pathPattern,
	"uri-template":  strings.ReplaceAll(uriPattern, "'", "") + `(/\{[a-z][a-z0-9]{0,20}\}){0,5}`,

	"uuid":                  `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`,
	"json-pointer":          pointerPattern,
	"relative-json-pointer": `(0|[1-9]\d{0,3})(#|` + pointerPattern + `)`,
	"regex":                 `[A-Za-z0-9 _-]{0,60}`,
	"semver":                `(0|[1-9]\d{0,5})\.(0|[1-9]\d{0,5})\.(0|[1-9]\d{0,5})(-[a-z]{1,10}(\.(0|[1-9]\d{0,3}))?)?`,
	"color":                 `#[0-9a-f]{6}|red|green|blue|black|white|gray|yellow|orange|purple`,
	"byte":                  `([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?`,

	// OpenAPI's formats of texts, and its tools' formats of numbers in texts.
	"password": "", "binary": "",
	"int32": `-?(0|[1-9]\d{0,8})`, "int64": `-?(0|[1-9]\d{0,17})`, "uint32": `0|[1-9]\d{0,8}`, "uint64": `0|[1-9]\d{0,17}`,
}

const (
	yearPattern     = `[1-9]\d{3}`
	datePattern     = `(` + yearPattern + `-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8]))|[1-9]\d(0[48]|[2468][048]|[13579][26])-02-29)`
	timePattern     = `([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)`
	dateTimePattern = datePattern + `T` + timePattern
	durationPattern = `P(\d{1,4}W|(\d{1,4}Y(\d{1,2}M(\d{1,3}D)?)?|\d{1,2}M(\d{1,3}D)?|\d{1,3}D)(T(\d{1,3}H(\d{1,3}M(\d{1,3}S)?)?|\d{1,3}M(\d{1,3}S)?|\d{1,3}S))?|T(\d{1,3}H(\d{1,3}M(\d{1,3}S)?)?|\d{1,3}M(\d{1,3}S)?|\d{1,3}S))`
	octet           = `(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`
	ipv4Pattern     = octet + `(\.` + octet + `){3}`
	labelPattern    = `[a-z0-9]{1,15}(-[a-z0-9]{1,15}){0,2}` // two hyphens together have a meaning
	topPattern      = `[a-z][a-z0-9]{0,14}(-[a-z0-9]{1,15}){0,2}`
	hostPattern     = `(` + labelPattern + `\.){0,4}` + topPattern
	emailPattern    = `[A-Za-z0-9_%+-]{1,20}(\.[A-Za-z0-9_%+-]{1,20}){0,2}@(` + labelPattern + `\.){1,4}[a-z]{2,10}`
	pathPattern     = `(/[A-Za-z0-9._~-]{1,60}){1,10}`
	uriChars        = `([A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-F]{2})`
	uriPattern      = `[A-Za-z][A-Za-z0-9+.-]*:(//([A-Za-z0-9._~-]+(:[A-Za-z0-9._~-]*)?@)?[A-Za-z0-9._~-]*(:([1-9]\d{0,3}|[1-5]\d{4}))?(/` + uriChars + `*)?|/?[A-Za-z0-9._~-]` + uriChars + `*)(\?(` + uriChars + `|\?)*)?(#(` + uriChars + `|\?)*)?`
	pointerPattern  = `(/([ !#-\[\]-}]|~[01]){0,60}){0,10}`
)

func (c *schemaReader) sources(f *facts) []string {
	all := slices.Clone(f.patterns)
	for _, name := range f.formats {
		p, ok := formats[name]
		if _, isNumber := numberFormats[name]; !ok && !isNumber {
			c.fail("the format %s of the schema is not supported: leave it out, or say it with pattern", clip(name))
		}
		if p != "" {
			all = append(all, "^(?:"+p+")$")
		}
	}
	return all
}

func (c *schemaReader) stringForm(f *facts) expr {
	var x expr
	for _, source := range c.sources(f) {
		if p := c.pattern(source); p != nil {
			x = c.both(x, c.patternForm(p))
		}
	}
	switch limited := f.minLength > 0 || f.maxLength >= 0; {
	case x == nil && !limited:
		return c.json.text
	case x == nil:
		return quoted(repeat{jsonChar(), f.minLength, f.maxLength})
	case limited:
		x = counted{newGraph(c.meter, x), f.minLength, f.maxLength}
	}
	return quoted(x)
}

// both intersects forms without rules; nil means every text.
func (c *schemaReader) both(x, y expr) expr {
	switch {
	case x == nil || c.err != nil:
		return y
	case y == nil:
		return x
	}
	return intersect(c.meter, newGraph(c.meter, x), newGraph(c.meter, y))
}

func (c *schemaReader) overlap(x, y expr) bool {
	g, ok := c.both(x, y).(*graph)
	return ok && slices.ContainsFunc(g.places, func(p place) bool { return p.final }) // all places are reachable
}

// except is the texts of a JSON string, as jsonText spells them, except these sorted ones.
type except []string

var unusual = append(class{{utf8.RuneSelf, utf8.MaxRune}}, special...).normal()

// The texts are a trie of characters; all others lead to one shared place.
func (b *builder) except(x except, from, to int32) {
	type node struct {
		texts []string
		at    int
		place int32
	}
	other, rest := b.add(), b.add() // after another character; before an unusual one
	b.emit(jsonClass(anyChar()), other, other)
	b.skip(other, to)
	b.emit(jsonClass(unusual), rest, other)
	queue := []node{{x, 0, b.add()}}
	b.skip(from, queue[0].place)
	b.places[other].free = true
	for len(queue) > 0 && b.err == nil {
		n := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		b.places[n.place].free = true
		if len(n.texts) > 0 && len(n.texts[0]) == n.at {
			n.texts = n.texts[1:]
		} else {
			b.skip(n.place, to)
		}
		var here class
		for len(n.texts) > 0 {
			r, size := utf8.DecodeRuneInString(n.texts[0][n.at:])
			begin := n.texts[0][:n.at+size]
			same := sort.Search(len(n.texts), func(i int) bool { return !strings.HasPrefix(n.texts[i], begin) })
			next := b.add()
			b.emit(jsonClass(class{{r, r}}), n.place, next)
			queue = append(queue, node{n.texts[:same], n.at + size, next})
			here, n.texts = append(here, span{r, r}), n.texts[same:]
		}
		not := here.not()
		if len(here.and(unusual)) == 0 {
			b.skip(n.place, rest)
			not = not.and(unusual.not())
		}
		b.emit(jsonClass(not), n.place, other)
	}
}
