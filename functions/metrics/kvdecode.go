package metrics

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

type kind int

const (
	unknown kind = iota
	stored
	removed
	cleared
)

var kinds = map[string]kind{"BlockStored": stored, "BlockRemoved": removed, "AllBlocksCleared": cleared}

type event struct {
	kind   kind
	hashes []uint64
	size   int // of each block, in tokens
	medium string
	group  int // of layers with a separate cache
}

// Names of an event's fields, in the order in which older servers send them without names.
var (
	storedFields  = []string{"type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys", "group_idx"}
	removedFields = []string{"type", "block_hashes", "medium", "group_idx"}
)

// decode reads a batch of events: a list of a time, the events, and more, or the same with names. see must not keep the hashes.
func decode(payload []byte, see func(event)) error {
	d := msgpack.NewDecoder(bytes.NewReader(payload))
	if isMap(payload) {
		none := errShape
		err := eachNamed(d, func(name string) error {
			if name != "events" {
				return d.Skip()
			}
			none = nil
			return readEvents(d, see)
		})
		return errors.Join(err, none)
	}
	n, err := d.DecodeArrayLen()
	if err != nil || n < 2 {
		return fmt.Errorf("a batch of %d fields: %w", n, errors.Join(err, errShape))
	}
	if err := d.Skip(); err != nil {
		return fmt.Errorf("a batch's time: %w", err)
	}
	return readEvents(d, see)
}

func isMap(raw []byte) bool {
	return len(raw) > 0 && (msgpcode.IsFixedMap(raw[0]) || raw[0] == msgpcode.Map16 || raw[0] == msgpcode.Map32)
}

func eachNamed(d *msgpack.Decoder, read func(name string) error) error {
	n, err := d.DecodeMapLen()
	if err != nil {
		return err
	}
	for range n {
		name, err := d.DecodeString()
		if err != nil {
			return err
		}
		if err := read(name); err != nil {
			return fmt.Errorf("%.40q: %w", name, err)
		}
	}
	return nil
}

func readEvents(d *msgpack.Decoder, see func(event)) error {
	events, err := d.DecodeArrayLen()
	if err != nil {
		return fmt.Errorf("a batch's events: %w", err)
	}
	for range events {
		var e event
		if err := e.read(d); err != nil {
			return fmt.Errorf("an event: %w", err)
		}
		if e.kind != unknown {
			see(e)
		}
	}
	return nil
}

var errShape = errors.New("it has another shape")

// read reads an event's fields with names or without.
func (e *event) read(d *msgpack.Decoder) error {
	code, err := d.PeekCode()
	if err != nil {
		return err // the caller says what it reads
	}
	if isMap([]byte{code}) {
		return eachNamed(d, func(name string) error { return e.field(d, name) })
	}
	n, err := d.DecodeArrayLen()
	if err != nil {
		return err
	}
	if n < 1 {
		return errShape
	}
	if err := e.field(d, "type"); err != nil {
		return err
	}
	names := storedFields
	if e.kind == removed {
		names = removedFields
	}
	for k := 1; k < n; k++ {
		name := ""
		if k < len(names) && e.kind != unknown {
			name = names[k]
		}
		if err := e.field(d, name); err != nil {
			return err
		}
	}
	return nil
}

func (e *event) field(d *msgpack.Decoder, name string) (err error) {
	switch name {
	case "type":
		var text string
		text, err = d.DecodeString()
		e.kind = kinds[text]
	case "block_hashes":
		return e.readHashes(d)
	case "block_size":
		e.size, err = d.DecodeInt()
	case "group_idx":
		e.group, err = d.DecodeInt() // nil is 0
	case "medium":
		e.medium, err = d.DecodeString() // nil is empty
	default:
		err = d.Skip()
	}
	return err
}

func (e *event) readHashes(d *msgpack.Decoder) error {
	n, err := d.DecodeArrayLen()
	if err != nil {
		return err
	}
	for range n {
		h, err := hashOf(d)
		if err != nil {
			return err
		}
		e.hashes = append(e.hashes, h)
	}
	return nil
}

// seed is for hashes that are bytes.
var seed = maphash.MakeSeed()

// hashOf reads a block's hash: a number of either sign, or bytes.
func hashOf(d *msgpack.Decoder) (uint64, error) {
	code, err := d.PeekCode()
	if err != nil {
		return 0, err
	}
	if msgpcode.IsBin(code) {
		raw, err := d.DecodeBytes()
		return maphash.Bytes(seed, raw), err
	}
	v, err := d.DecodeInterfaceLoose()
	if err != nil {
		return 0, err
	}
	switch v := v.(type) {
	case int64:
		return uint64(v), nil
	case uint64:
		return v, nil
	}
	return 0, errShape
}
