package pyfunc

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// column collects the strings of a call, whichever form they come in. Its
// methods take values that are known to be JSON. They return failures for what a
// scoring server refuses, and other errors for what the model behind it does.
type column struct{ items [][]byte }

// members visits the members of an object, in order, until one fails.
func members(object []byte, visit func(key, value []byte) error) (err error) {
	_ = jsonfield.Each(object, 0, func(name, value []byte) bool { // it is JSON
		err = visit(jsonfield.Text(name), value)
		return err == nil
	})
	return err
}

// elements visits the items of an array, in order, until one fails.
func elements(array []byte, visit func(value []byte) error) (err error) {
	_ = jsonfield.Items(array, func(value []byte) bool { // it is JSON
		err = visit(value)
		return err == nil
	})
	return err
}

// errNotOne is the model's refusal of a table with more or fewer columns.
type errNotOne int

// Error is in the stock server's words.
func (n errNotOne) Error() string {
	return fmt.Sprintf("Dataframe must have only one column, but received %d columns", int(n))
}

// cell takes the value of one cell.
func (c *column) cell(value []byte) error {
	if value[0] != '"' {
		return fmt.Errorf("input %d is of type %s: want a string", len(c.items), pythonType(value))
	}
	c.items = append(c.items, jsonfield.Text(value))
	return nil
}

// row takes a cell, or a list of one cell.
func (c *column) row(value []byte) error {
	if value[0] != '[' {
		return c.cell(value)
	}
	n := 0
	err := elements(value, func(value []byte) error {
		if n++; n > 1 {
			return nil // counted only
		}
		return c.cell(value)
	})
	if err == nil && n != 1 {
		err = errNotOne(n)
	}
	return err
}

// inputs takes a list of strings, or an object: its values in order, or the list
// of strings that its only value is.
func (c *column) inputs(value []byte) error {
	switch value[0] {
	case '[':
		return c.list(value)
	case '{':
	default:
		return fmt.Errorf("model_input must be a list, dict, numpy array, or dataframe but received: %s", pythonType(value))
	}
	n, lists := 0, 0
	err := members(value, func(_, value []byte) error {
		n++
		if value[0] != '[' {
			return c.cell(value)
		}
		if lists++; n > 1 {
			return nil // refused below
		}
		return c.list(value)
	})
	if err == nil && lists > 0 && n > 1 {
		err = errNotOne(n)
	}
	return err
}

// list takes a list of rows, or of objects.
func (c *column) list(value []byte) error {
	if first(value) == '{' {
		return c.records(value)
	}
	return elements(value, c.row)
}

// first is the byte with which a list's first item begins; 0: it has none.
func first(list []byte) (first byte) {
	_ = jsonfield.Items(list, func(item []byte) bool { // it is JSON
		first = item[0]
		return false
	})
	return first
}

// instances takes what inputs does; of objects each column must be as long as
// the others.
func (c *column) instances(value []byte) error {
	if value[0] != '[' || first(value) != '{' {
		return c.inputs(value)
	}
	lengths := map[string]int{}
	_ = elements(value, func(value []byte) error {
		if value[0] != '{' {
			return nil
		}
		return members(value, func(key, _ []byte) error {
			lengths[string(key)]++
			return nil
		})
	})
	longest := -1
	for _, n := range lengths {
		if longest >= 0 && n != longest {
			return failure{Message: "Failed to parse data as TF serving input. The length of values for each input/column name are not the same"}
		}
		longest = n
	}
	return c.records(value)
}

// maxNames bounds how many names of columns are counted.
const maxNames = 1000

// records takes a list of objects with one and the same key.
func (c *column) records(value []byte) error {
	if value[0] != '[' {
		got := "type " + pythonType(value)
		if value[0] == '{' {
			got = "dictionary"
		}
		return invalid("Dataframe records format must be a list of records. Got " + got + ".")
	}
	var names []string
	err := elements(value, func(value []byte) error {
		if value[0] != '{' {
			return c.row(value)
		}
		before := len(c.items)
		err := members(value, func(key, value []byte) error {
			if !slices.Contains(names, string(key)) {
				if names = append(names, string(key)); len(names) > maxNames {
					return errNotOne(len(names))
				}
			}
			if len(names) > 1 {
				return nil // refused below
			}
			return c.cell(value)
		})
		if err == nil && len(names) == 1 && len(c.items) != before+1 {
			err = fmt.Errorf("record %d has no value, or two, for its column: want one string", before)
		}
		return err
	})
	if err == nil && len(names) > 1 {
		err = errNotOne(len(names))
	}
	return err
}

// split takes {"columns": […], "index": […], "data": […]}.
func (c *column) split(value []byte) error {
	if value[0] != '{' {
		got := "type " + pythonType(value)
		if value[0] == '[' {
			got = "list"
		}
		return invalid("Dataframe split format must be a dictionary. Got " + got + ".")
	}
	parts := map[string][]byte{}
	var got []string
	_ = members(value, func(key, value []byte) error {
		if _, twice := parts[string(key)]; !twice && len(got) < 10 {
			got = append(got, "'"+string(key)+"'")
		}
		parts[string(key)] = value
		return nil
	})
	_, found := parts["data"]
	for name := range parts {
		found = found && (name == "data" || name == "columns" || name == "index")
	}
	if !found {
		return invalid("Dataframe split format must have 'data' field and optionally 'columns' and 'index' fields. Got {" + strings.Join(got, ", ") + "}.'")
	}
	return c.frame(parts)
}

// frame takes the rows of a frame whose names and index must fit them.
func (c *column) frame(parts map[string][]byte) error {
	broken := func(format string, args ...any) error {
		return invalid("Provided dataframe_split field is not a valid dataframe representation in 'split' format. Error: '" + fmt.Sprintf(format, args...) + "'")
	}
	lengths := map[string]int{}
	for _, name := range []string{"data", "columns", "index"} {
		value, found := parts[name]
		if !found || name != "data" && value[0] == 'n' {
			continue
		}
		if value[0] != '[' {
			return broken("%s is of type %s: want a list", name, pythonType(value))
		}
		lengths[name] = length(value)
	}
	if labels, found := lengths["index"]; found && labels != lengths["data"] {
		return broken("there are %d rows and %d labels in the index", lengths["data"], labels)
	}
	width, named := lengths["columns"]
	return elements(parts["data"], func(value []byte) error {
		cells := 1
		if value[0] == '[' {
			cells = length(value)
		}
		switch {
		case named && cells != width:
			return broken("%d columns are named and a row has %d", width, cells)
		case cells != 1:
			return errNotOne(cells)
		}
		return c.row(value)
	})
}

// length is the number of items of a list.
func length(list []byte) (n int) {
	_ = jsonfield.Items(list, func([]byte) bool { n++; return true }) // it is JSON
	return n
}
