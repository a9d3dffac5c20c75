package pyfunc

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// column collects the strings of a call, whichever form they come in. The models of mlflow-extensions are logged with the signature of
// one column of strings that has no name. By it MLflow takes the first column of a table and leaves out the others, which the
// methods do too, but for one that has the name "prompt". They take values that are known to be JSON. They return failures for what a scoring server refuses, and other
// errors for what the model behind it does.
type column struct {
	items [][]byte
	at    int // its place in rows that are lists
}

// namedColumn is taken wherever it stands.
const namedColumn = "prompt"

// noColumn is MLflow's refusal of data in which there is nothing for a signature's column.
var noColumn = failure{Code: "INVALID_PARAMETER_VALUE", Message: "Failed to enforce the schema of the data: it has no column, and the model wants one of strings"}

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

// first is a list's first item; nil: it has none.
func first(list []byte) []byte { return nth(list, 0) }

// nth is an item of a list; nil: it has fewer.
func nth(list []byte, n int) (nth []byte) {
	_ = jsonfield.Items(list, func(item []byte) bool { // it is JSON
		if n--; n < 0 {
			nth = item
		}
		return n >= 0
	})
	return nth
}

// length is the number of items of a list.
func length(list []byte) (n int) {
	_ = jsonfield.Items(list, func([]byte) bool { n++; return true }) // it is JSON
	return n
}

// begins says whether a value is there and begins so.
func begins(value []byte, with byte) bool { return len(value) > 0 && value[0] == with }

// cell takes the value of one cell.
func (c *column) cell(value []byte) error {
	if value[0] != '"' {
		return fmt.Errorf("input %d is of type %s: want a string", len(c.items), pythonType(value))
	}
	c.items = append(c.items, jsonfield.Text(value))
	return nil
}

// rows takes a list of cells, or of rows that are lists of cells; only in a frame may one be shorter than others. It returns the number of columns.
func (c *column) rows(list []byte, frame bool) (wide int, err error) {
	nested, narrow := begins(first(list), '['), -1
	err = elements(list, func(row []byte) error {
		width := 1
		switch {
		case begins(row, '[') != nested:
			return fmt.Errorf("row %d is of type %s: want a string in each row, or a list of strings in each", len(c.items), pythonType(row))
		case nested:
			width, row = length(row), nth(row, c.at)
		}
		if wide = max(wide, width); narrow < 0 || width < narrow {
			narrow = width
		}
		if width <= c.at {
			return nil
		}
		return c.cell(row)
	})
	switch {
	case err != nil:
		return 0, err
	case wide == 0:
		return 0, noColumn
	case narrow <= c.at || narrow < wide && !frame:
		return 0, invalid("the rows have between " + fmt.Sprint(narrow) + " and " + fmt.Sprint(wide) + " values: want as many in each")
	}
	return wide, nil
}

// inputs takes a string, a list of strings or a list of rows.
func (c *column) inputs(value []byte) error {
	switch {
	case value[0] == '"':
		return c.cell(value)
	case value[0] == '{' || value[0] == '[' && begins(first(value), '{'):
		return invalid("the model's column has no name, and the input has names: want a list of strings")
	case value[0] != '[':
		return fmt.Errorf("model_input must be a list, dict, numpy array, or dataframe but received: %s", pythonType(value))
	}
	_, err := c.rows(value, false)
	return err
}

// maxNames bounds how many names of columns are counted.
const maxNames = 1000

// objects takes the column that is named first in a list of objects. It returns how many values each column has, and how many objects there are.
func (c *column) objects(list []byte) (lengths map[string]int, n int, err error) {
	lengths = map[string]int{}
	last := map[string]int{} // the number of the object that a name was last in
	var name *string
	err = elements(list, func(object []byte) error {
		if n++; object[0] != '{' {
			return fmt.Errorf("item %d is of type %s: want an object in each", n-1, pythonType(object))
		}
		var cell []byte
		err := members(object, func(key, value []byte) error {
			k := string(key)
			if name == nil || n == 1 && k == namedColumn {
				name, cell = &k, nil
			}
			if k == *name {
				cell = value // of a key that is repeated the last counts
			}
			if last[k] != n {
				last[k] = n
				lengths[k]++
			}
			if len(lengths) > maxNames {
				return invalid(fmt.Sprintf("the objects have more than %d keys", maxNames))
			}
			return nil
		})
		if err != nil || cell == nil {
			return err
		}
		return c.cell(cell)
	})
	if err == nil && name == nil {
		err = noColumn
	}
	return lengths, n, err
}

// instances takes what inputs does, and a list of objects with as many values for each key.
func (c *column) instances(value []byte) error {
	if value[0] != '[' || !begins(first(value), '{') {
		return c.inputs(value)
	}
	lengths, _, err := c.objects(value)
	for _, n := range lengths {
		if err == nil && n != len(c.items) {
			return invalid("The length of values for each input/column name are not the same")
		}
	}
	return err
}

// records takes a list of objects, which all have the first one's first key, or of rows.
func (c *column) records(value []byte) error {
	if value[0] != '[' {
		got := "type " + pythonType(value)
		if value[0] == '{' {
			got = "dictionary"
		}
		return invalid("Dataframe records format must be a list of records. Got " + got + ".")
	}
	if !begins(first(value), '{') {
		_, err := c.rows(value, true)
		return err
	}
	_, n, err := c.objects(value)
	if err == nil && n != len(c.items) {
		err = fmt.Errorf("%d records of %d have no value in the first column: want one string in each", n-len(c.items), n)
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

// frame takes the rows of a frame, whose names and index must fit them. As in pandas the index of a single row repeats it.
func (c *column) frame(parts map[string][]byte) error {
	broken := func(format string, args ...any) error {
		return invalid("Provided dataframe_split field is not a valid dataframe representation in 'split' format. Error: '" + fmt.Sprintf(format, args...) + "'")
	}
	lengths := map[string]int{}
	for name, value := range parts {
		switch value[0] {
		case 'n': // as if it were not there
		case '[':
			lengths[name] = length(value)
		default:
			return broken("%s is of type %s: want a list", name, pythonType(value))
		}
	}
	data, rows := parts["data"], lengths["data"]
	if place := 0; lengths["columns"] > 0 {
		_ = elements(parts["columns"], func(name []byte) error {
			if begins(name, '"') && string(jsonfield.Text(name)) == namedColumn {
				c.at = place
			}
			place++
			return nil
		})
	}
	if rows > 0 {
		wide, err := c.rows(data, true)
		if err != nil {
			return err
		}
		if named, found := lengths["columns"]; found && named != wide {
			return broken("%d columns are named and the rows have %d", named, wide)
		}
	} else if lengths["columns"] == 0 {
		return noColumn
	}
	switch labels, found := lengths["index"]; {
	case !found || labels == rows:
	case rows == 1 && begins(first(data), '['):
		c.items = slices.Repeat(c.items, labels)
	default:
		return broken("there are %d rows and %d labels in the index", rows, labels)
	}
	return nil
}
