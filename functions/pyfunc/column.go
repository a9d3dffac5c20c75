package pyfunc

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// column collects the strings of a call. MLflow uses the first column of a table, as mlflow-extensions' models have a single one without
// a name; so do the methods, but for a column named "prompt". They return failures for the refusals of a scoring server, and other errors
// for those of the model behind it. Their arguments are valid JSON.
type column struct {
	items [][]byte
	at    int // its index in rows that are lists
}

const namedColumn = "prompt"

var noColumn = failure{Code: "INVALID_PARAMETER_VALUE", Message: "Failed to enforce the schema of the data: it has no column, and the model wants one of strings"}

func members(object []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		_ = jsonfield.Each(object, func(name, value []byte) bool { return yield(string(jsonfield.Text(name)), value) })
	}
}

func elements(array []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) { _ = jsonfield.Items(array, yield) }
}

// nth returns nil if the list is shorter.
func nth(list []byte, n int) []byte {
	for item := range elements(list) {
		if n == 0 {
			return item
		}
		n--
	}
	return nil
}

func length(list []byte) (n int) {
	for range elements(list) {
		n++
	}
	return n
}

func begins(value []byte, with byte) bool { return len(value) > 0 && value[0] == with }

func isListOf(value []byte, with byte) bool { return begins(value, '[') && begins(nth(value, 0), with) }

func (c *column) cell(value []byte) error {
	if value[0] != '"' {
		return fmt.Errorf("input %d is of type %s: want a string", len(c.items), pythonType(value))
	}
	c.items = append(c.items, jsonfield.Text(value))
	return nil
}

// rows adds a list of cells, or of rows that are lists of cells; only in a frame may one be shorter than others. It returns the number of
// columns.
func (c *column) rows(list []byte, frame bool) (wide int, err error) {
	nested, narrow := isListOf(list, '['), -1
	for row := range elements(list) {
		width := 1
		if begins(row, '[') != nested {
			return 0, fmt.Errorf("row %d is of type %s: want a string in each row, or a list of strings in each", len(c.items), pythonType(row))
		}
		if nested {
			width, row = length(row), nth(row, c.at)
		}
		if wide = max(wide, width); narrow < 0 || width < narrow {
			narrow = width
		}
		if width > c.at {
			if err := c.cell(row); err != nil {
				return 0, err
			}
		}
	}
	switch {
	case wide == 0:
		return 0, noColumn
	case narrow <= c.at || narrow < wide && !frame:
		return 0, invalid(fmt.Sprintf("the rows have between %d and %d values: want as many in each", narrow, wide))
	}
	return wide, nil
}

func (c *column) inputs(value []byte) error {
	switch {
	case value[0] == '"':
		return c.cell(value)
	case value[0] == '{' || isListOf(value, '{'):
		return invalid("the model's column has no name, and the input has names: want a list of strings")
	case value[0] != '[':
		return fmt.Errorf("model_input must be a list, dict, numpy array, or dataframe but received: %s", pythonType(value))
	}
	_, err := c.rows(value, false)
	return err
}

const maxNames = 1000

// objects adds one column of a list of objects: "prompt" if the first object has it, else its first key. It returns the number of values
// of each column, and of objects.
func (c *column) objects(list []byte) (lengths map[string]int, n int, err error) {
	lengths = map[string]int{}
	last := map[string]int{} // by name, the number of the last object that has it
	name := ""
	for object := range elements(list) {
		if n++; object[0] != '{' {
			return nil, 0, fmt.Errorf("item %d is of type %s: want an object in each", n-1, pythonType(object))
		}
		var cell []byte
		for k, value := range members(object) {
			if len(lengths) == 0 || n == 1 && k == namedColumn {
				name, cell = k, nil
			}
			if k == name {
				cell = value
			}
			if last[k] != n {
				last[k] = n
				lengths[k]++
			}
			if len(lengths) > maxNames {
				return nil, 0, invalid(fmt.Sprintf("the objects have more than %d keys", maxNames))
			}
		}
		if cell != nil {
			if err := c.cell(cell); err != nil {
				return nil, 0, err
			}
		}
	}
	if len(lengths) == 0 {
		return nil, 0, noColumn
	}
	return lengths, n, nil
}

func (c *column) instances(value []byte) error {
	if !isListOf(value, '{') {
		return c.inputs(value)
	}
	lengths, _, err := c.objects(value)
	for _, n := range lengths {
		if n != len(c.items) {
			return invalid("The length of values for each input/column name are not the same")
		}
	}
	return err
}

func (c *column) records(value []byte) error {
	if value[0] != '[' {
		return invalid("Dataframe records format must be a list of records. Got " + typeBut(value, '{', "dictionary") + ".")
	}
	if !isListOf(value, '{') {
		_, err := c.rows(value, true)
		return err
	}
	_, n, err := c.objects(value)
	if err == nil && n != len(c.items) {
		err = fmt.Errorf("%d records of %d have no value in the first column: want one string in each", n-len(c.items), n)
	}
	return err
}

func typeBut(value []byte, with byte, word string) string {
	if begins(value, with) {
		return word
	}
	return "type " + pythonType(value)
}

func (c *column) split(value []byte) error {
	if value[0] != '{' {
		return invalid("Dataframe split format must be a dictionary. Got " + typeBut(value, '[', "list") + ".")
	}
	parts := map[string][]byte{}
	var got []string
	for key, value := range members(value) {
		if parts[key] == nil && len(got) < 10 {
			got = append(got, "'"+key+"'")
		}
		parts[key] = value
	}
	known := 0
	for _, name := range []string{"data", "columns", "index"} {
		if parts[name] != nil {
			known++
		}
	}
	if parts["data"] == nil || known < len(parts) {
		return invalid("Dataframe split format must have 'data' field and optionally 'columns' and 'index' fields. Got {" + strings.Join(got, ", ") + "}.'")
	}
	return c.frame(parts)
}

// frame adds the rows of a frame, whose names and index must fit them. As in pandas the index of a single row repeats it.
func (c *column) frame(parts map[string][]byte) error {
	broken := func(format string, args ...any) error {
		return invalid("Provided dataframe_split field is not a valid dataframe representation in 'split' format. Error: '" + fmt.Sprintf(format, args...) + "'")
	}
	lengths := map[string]int{}
	for name, value := range parts {
		switch value[0] {
		case 'n':
		case '[':
			lengths[name] = length(value)
		default:
			return broken("%s is of type %s: want a list", name, pythonType(value))
		}
	}
	data, rows := parts["data"], lengths["data"]
	place := 0
	for name := range elements(parts["columns"]) {
		if begins(name, '"') && string(jsonfield.Text(name)) == namedColumn {
			c.at = place
		}
		place++
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
	case rows == 1 && isListOf(data, '['):
		c.items = slices.Repeat(c.items, labels)
	default:
		return broken("there are %d rows and %d labels in the index", rows, labels)
	}
	return nil
}

// csv adds the column "prompt", or else the first, of a table with a header. If the rows have more cells than that, the first cells are
// the index, as in pandas.
func (c *column) csv(body []byte) error {
	broken := func(why string) error {
		return failure{Message: "Failed to parse input as a Pandas DataFrame. Ensure that the input is a valid CSV-formatted" +
			" Pandas DataFrame produced using the `pandas.DataFrame.to_csv()` method. Error: '" + why + "'"}
	}
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	if !bytes.Contains(body, []byte("\n")) {
		body = bytes.ReplaceAll(body, []byte("\r"), []byte("\n"))
	}
	in := csv.NewReader(bytes.NewReader(body))
	in.FieldsPerRecord = -1
	head, err := in.Read()
	if err == io.EOF || err == nil && strings.TrimSpace(strings.Join(head, ",")) == "" {
		return broken("No columns to parse from file")
	}
	width, place := 0, max(0, slices.Index(head, namedColumn))
	for err == nil {
		var row []string
		if row, err = in.Read(); err != nil {
			break
		}
		if width == 0 {
			width = max(len(row), len(head))
		}
		line, _ := in.FieldPos(0)
		at := width - len(head) + place
		if len(row) > width {
			return broken(fmt.Sprintf("Expected %d fields in line %d, saw %d", width, line, len(row)))
		}
		if len(row) <= at {
			return unexpected(fmt.Sprintf("there is nothing in column %d of line %d: want a string", at+1, line))
		}
		c.items = append(c.items, []byte(row[at]))
	}
	if err != io.EOF {
		return broken(err.Error())
	}
	return nil
}
