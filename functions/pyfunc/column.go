package pyfunc

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/functions/pyfunc/internal/span"
)

// column collects the strings of a call, whichever form they come in. Its
// methods read values that were read before and return where they end. They
// return failures for what a scoring server refuses, and other errors for what
// the model behind it does.
type column struct {
	body  []byte
	items [][]byte
}

// errNotOne is the model's refusal of a table with more or fewer columns.
type errNotOne int

// Error is in the stock server's words.
func (n errNotOne) Error() string {
	return fmt.Sprintf("Dataframe must have only one column, but received %d columns", int(n))
}

// typeAt is the Python type of the value at an offset.
func (c *column) typeAt(at int) string {
	end, _ := span.Skip(c.body, at) // it was read before
	return pythonType(c.body[at:end])
}

// cell takes the value of one cell.
func (c *column) cell(at int) (int, error) {
	if c.body[at] != '"' {
		return 0, fmt.Errorf("input %d is of type %s: want a string", len(c.items), c.typeAt(at))
	}
	text, end, err := span.Decode(c.body, at)
	c.items = append(c.items, text)
	return end, err
}

// row takes a cell, or a list of one cell.
func (c *column) row(at int) (int, error) {
	if c.body[at] != '[' {
		return c.cell(at)
	}
	n := 0
	end, err := span.Array(c.body, at, func(at int) (int, error) {
		if n++; n > 1 {
			return span.Skip(c.body, at) // counted only
		}
		return c.cell(at)
	})
	if err == nil && n != 1 {
		err = errNotOne(n)
	}
	return end, err
}

// inputs takes a list of strings, or an object: its values in order, or the list
// of strings that its only value is.
func (c *column) inputs(at int) (int, error) {
	switch c.body[at] {
	case '[':
		return c.list(at)
	case '{':
	default:
		return 0, fmt.Errorf("model_input must be a list, dict, numpy array, or dataframe but received: %s", c.typeAt(at))
	}
	n, lists := 0, 0
	end, err := span.Object(c.body, at, func(key []byte, at int) (int, error) {
		n++
		if string(key) == "signature_name" {
			return 0, failure{Message: signatureName}
		}
		if c.body[at] != '[' {
			return c.cell(at)
		}
		if lists++; n > 1 {
			return span.Skip(c.body, at) // refused below
		}
		return c.list(at)
	})
	if err == nil && lists > 0 && n > 1 {
		err = errNotOne(n)
	}
	return end, err
}

// list takes a list of rows, or of objects.
func (c *column) list(at int) (int, error) {
	if first := c.first(at); first == '{' {
		return c.records(at)
	}
	return span.Array(c.body, at, c.row)
}

// first is the byte with which a list's first item begins; 0: it has none.
func (c *column) first(at int) (first byte) {
	_, _ = span.Array(c.body, at, func(at int) (int, error) { // it was read before
		first = c.body[at]
		return 0, errors.New("one is enough")
	})
	return first
}

// instances takes what inputs does; of objects each column must be as long as
// the others.
func (c *column) instances(at int) (int, error) {
	if c.body[at] != '[' || c.first(at) != '{' {
		return c.inputs(at)
	}
	lengths := map[string]int{}
	_, err := span.Array(c.body, at, func(at int) (int, error) {
		if c.body[at] != '{' {
			return span.Skip(c.body, at)
		}
		return span.Object(c.body, at, func(key []byte, at int) (int, error) {
			lengths[string(key)]++
			return span.Skip(c.body, at)
		})
	})
	if err != nil {
		return 0, err
	}
	longest := -1
	for _, n := range lengths {
		if longest >= 0 && n != longest {
			return 0, failure{Message: "Failed to parse data as TF serving input. The length of values for each input/column name are not the same"}
		}
		longest = n
	}
	return c.records(at)
}

// maxNames bounds how many names of columns are counted.
const maxNames = 1000

// records takes a list of objects with one and the same key.
func (c *column) records(at int) (int, error) {
	if c.body[at] != '[' {
		got := "type " + c.typeAt(at)
		if c.body[at] == '{' {
			got = "dictionary"
		}
		return 0, failure{Message: "Dataframe records format must be a list of records. Got " + got + "."}
	}
	var names []string
	end, err := span.Array(c.body, at, func(at int) (int, error) {
		if c.body[at] != '{' {
			return c.row(at)
		}
		before := len(c.items)
		end, err := span.Object(c.body, at, func(key []byte, at int) (int, error) {
			if !slices.Contains(names, string(key)) {
				if names = append(names, string(key)); len(names) > maxNames {
					return 0, errNotOne(len(names))
				}
			}
			if len(names) > 1 {
				return span.Skip(c.body, at) // refused below
			}
			return c.cell(at)
		})
		if err == nil && len(names) == 1 && len(c.items) != before+1 {
			err = fmt.Errorf("record %d has no value, or two, for its column: want one string", before)
		}
		return end, err
	})
	if err == nil && len(names) > 1 {
		err = errNotOne(len(names))
	}
	return end, err
}

// split takes {"columns": […], "index": […], "data": […]}.
func (c *column) split(at int) (int, error) {
	if c.body[at] != '{' {
		got := "type " + c.typeAt(at)
		if c.body[at] == '[' {
			got = "list"
		}
		return 0, failure{Message: "Dataframe split format must be a dictionary. Got " + got + "."}
	}
	parts := map[string]int{}
	var got []string
	end, err := span.Object(c.body, at, func(key []byte, at int) (int, error) {
		if _, twice := parts[string(key)]; !twice && len(got) < 10 {
			got = append(got, "'"+string(key)+"'")
		}
		parts[string(key)] = at
		return span.Skip(c.body, at)
	})
	if err != nil {
		return 0, err
	}
	_, found := parts["data"]
	for name := range parts {
		found = found && (name == "data" || name == "columns" || name == "index")
	}
	if !found {
		return 0, failure{Message: "Dataframe split format must have 'data' field and optionally 'columns' and 'index' fields. Got {" + strings.Join(got, ", ") + "}."}
	}
	return end, c.frame(parts)
}

// frame takes the rows of a frame whose names and index must fit them.
func (c *column) frame(parts map[string]int) error {
	invalid := func(format string, args ...any) error {
		return failure{Message: "Provided dataframe_split field is not a valid dataframe representation in 'split' format. Error: '" + fmt.Sprintf(format, args...) + "'"}
	}
	lengths := map[string]int{}
	for _, name := range []string{"data", "columns", "index"} {
		at, found := parts[name]
		if !found || name != "data" && c.body[at] == 'n' {
			continue
		}
		if c.body[at] != '[' {
			return invalid("%s is of type %s: want a list", name, c.typeAt(at))
		}
		lengths[name] = c.length(at)
	}
	if labels, found := lengths["index"]; found && labels != lengths["data"] {
		return invalid("there are %d rows and %d labels in the index", lengths["data"], labels)
	}
	width, named := lengths["columns"]
	_, err := span.Array(c.body, parts["data"], func(at int) (int, error) {
		cells := 1
		if c.body[at] == '[' {
			cells = c.length(at)
		}
		switch {
		case named && cells != width:
			return 0, invalid("%d columns are named and a row has %d", width, cells)
		case cells != 1:
			return 0, errNotOne(cells)
		}
		return c.row(at)
	})
	return err
}

// length is the number of items of a list.
func (c *column) length(at int) (n int) {
	_, _ = span.Array(c.body, at, func(at int) (int, error) { // it was read before
		n++
		return span.Skip(c.body, at)
	})
	return n
}
