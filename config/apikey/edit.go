package apikey

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"
)

// ErrUnknown means that [Remove] or [Set] found no key of that name.
var ErrUnknown = errors.New("no key has that name")

const header = `# Who may use the front door. Keys themselves are not kept: each is known by its hash.
# rouse keys create, set and revoke change this file; a server reads it again on change.
`

// Add returns the file with a further key. Comments and order stay. nil is an empty file.
func Add(raw []byte, k Key) ([]byte, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = []byte(header + "keys: []\n")
	}
	if f, err := Parse(raw); err == nil && slices.ContainsFunc(f.Keys, func(o Key) bool { return o.Name == k.Name }) {
		return nil, fmt.Errorf("there is a key %s already: revoke it, or choose another name", k.Name)
	}
	return edit(raw, func(list *yaml.Node) error {
		entry, err := entryOf(k)
		list.Style = 0
		list.Content = append(list.Content, entry)
		return err
	})
}

func entryOf(k Key) (*yaml.Node, error) {
	text, err := json.Marshal(k)
	var doc yaml.Node
	if err == nil {
		err = yaml.Unmarshal(text, &doc)
	}
	if err != nil {
		return nil, fmt.Errorf("write the key: %w", err)
	}
	entry := doc.Content[0]
	entry.Style = 0
	for _, n := range entry.Content {
		if n.Kind == yaml.ScalarNode {
			n.Style = 0
		}
	}
	return entry, nil
}

// Set returns the file with the named key changed, but for its name and hash. Comments of remaining fields stay.
func Set(raw []byte, name string, change func(*Key) error) ([]byte, error) {
	f, err := Parse(raw)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(f.Keys, func(k Key) bool { return k.Name == name })
	if at < 0 {
		return nil, fmt.Errorf("%w: %s", ErrUnknown, name)
	}
	k := f.Keys[at]
	if err := change(&k); err != nil {
		return nil, err
	}
	k.Name, k.Hash = name, f.Keys[at].Hash
	return edit(raw, func(list *yaml.Node) error {
		entry, err := entryOf(k)
		if err == nil {
			keepComments(list.Content[at], entry)
			list.Content[at] = entry
		}
		return err
	})
}

func keepComments(from, to *yaml.Node) {
	one := func(from, to *yaml.Node) {
		to.HeadComment, to.LineComment, to.FootComment = from.HeadComment, from.LineComment, from.FootComment
	}
	one(from, to)
	to.Style = from.Style
	for i := 0; i+1 < len(from.Content); i += 2 {
		for k := 0; k+1 < len(to.Content); k += 2 {
			if from.Content[i].Value == to.Content[k].Value {
				one(from.Content[i], to.Content[k])
				one(from.Content[i+1], to.Content[k+1])
			}
		}
	}
}

// Remove returns the file without the named key, or [ErrUnknown].
func Remove(raw []byte, name string) ([]byte, error) {
	return edit(raw, func(list *yaml.Node) error {
		at := slices.IndexFunc(list.Content, func(n *yaml.Node) bool {
			var k struct{ Name string }
			return n.Decode(&k) == nil && k.Name == name
		})
		if at < 0 {
			return fmt.Errorf("%w: %s", ErrUnknown, name)
		}
		list.Content = slices.Delete(list.Content, at, at+1)
		return nil
	})
}

// The file is valid before and after.
func edit(raw []byte, change func(list *yaml.Node) error) ([]byte, error) {
	if _, err := Parse(raw); err != nil {
		return nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return nil, fmt.Errorf("the file of keys: %w", err)
	}
	if len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("the file of keys: want keys: and a list")
	}
	top := doc.Content[0]
	at := slices.IndexFunc(top.Content, func(n *yaml.Node) bool { return n.Value == "keys" })
	if at < 0 {
		top.Content = append(top.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "keys"}, &yaml.Node{Kind: yaml.SequenceNode})
		at = len(top.Content) - 2
	}
	list := top.Content[at+1]
	if list.Kind != yaml.SequenceNode {
		*list = yaml.Node{Kind: yaml.SequenceNode}
	}
	if err := change(list); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(&doc), enc.Close()); err != nil {
		return nil, fmt.Errorf("write the keys: %w", err)
	}
	_, err := Parse(out.Bytes())
	return out.Bytes(), err
}
