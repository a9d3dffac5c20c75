package protocol

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"
)

// FuzzUp checks that a message accepted by Validate is within the limits, and survives another round trip.
func FuzzUp(f *testing.F) {
	f.Add([]byte(`{"hello":{"protocol":1,"cluster":"c","agent":"a"},"beat":1,"way":5}`))
	f.Add([]byte(`{"functions":[{"name":"default/x","model":"x","aliases":["y"],"seq":1,"state":"awake","places":3,"failed":{"status":200,"message":"m"}}],"complete":true}`))
	f.Add([]byte(`{"functions":[{"name":"default/x","places":9223372036854775807,"expected":9223372036854775807}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var u Up
		if json.Unmarshal(raw, &u) != nil || u.Validate() != nil {
			return
		}
		if len(u.Functions) > MaxFunctions || u.Way < 0 {
			t.Errorf("taken: %+v", u)
		}
		for _, fn := range u.Functions {
			if fn.Places+fn.Running < 0 || fn.Places > MaxCount || fn.Expected+u.Way < fn.Expected || fn.Expected > MaxExpected {
				t.Errorf("taken: %+v", fn)
			}
			if fn.Failed != nil {
				if e := fn.Failed.AsError(); e.Status < 400 || e.Status > 599 {
					t.Errorf("a failure with the status %d", e.Status)
				}
			}
		}
		again, err := json.Marshal(u)
		if err != nil {
			t.Fatal(err)
		}
		var other Up
		if err := json.Unmarshal(again, &other); err != nil {
			t.Fatal(err)
		}
		if third, _ := json.Marshal(other); !slices.Equal(third, again) {
			t.Errorf("%s, then %s", again, third)
		}
	})
}

// TestNoTimeOfDay checks that an agent sends no time of day, so that its clock is never compared with a front door's.
func TestNoTimeOfDay(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var look func(of reflect.Type, path string)
	look = func(of reflect.Type, path string) {
		if seen[of] {
			return
		}
		seen[of] = true
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			look(of.Elem(), path)
		case reflect.Struct:
			if of == reflect.TypeFor[time.Time]() {
				t.Errorf("%s is a time of day", path)
				return
			}
			for i := range of.NumField() {
				look(of.Field(i).Type, path+"."+of.Field(i).Name)
			}
		default:
		}
	}
	look(reflect.TypeFor[Up](), "Up")
}
