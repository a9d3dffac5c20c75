package decide

import (
	"reflect"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// TestStatusIsWhole: whatever is known of a device or was learned of a function reaches the
// administrative API, in the field of the same name.
func TestStatusIsWhole(t *testing.T) {
	var device inventory.Device
	var past inventory.Experience
	for _, v := range []any{&device, &past} {
		fill(reflect.ValueOf(v).Elem())
	}
	for _, x := range []struct{ from, to any }{
		{device, Account(Snapshot{Topology: NewTopology([]inventory.Device{device})}, time.Time{})[0]}, {past, past.Learned()},
	} {
		from, to := reflect.ValueOf(x.from), reflect.ValueOf(x.to)
		for k := range to.NumField() {
			name := to.Type().Field(k).Name
			want := from.FieldByName(name)
			if _, device := x.from.(inventory.Device); device && !want.IsValid() {
				continue // its use
			}
			if to.Field(k).IsZero() || !reflect.DeepEqual(to.Field(k).Interface(), want.Interface()) {
				t.Errorf("%s.%s is %v, want %v", to.Type(), name, to.Field(k), want)
			}
		}
	}
}

// fill gives each field that is a number, a text or holds some a value of its own.
func fill(v reflect.Value) {
	for k := range v.NumField() {
		f := v.Field(k)
		for f.Kind() == reflect.Array {
			f = f.Index(1)
		}
		switch {
		case f.CanInt():
			f.SetInt(int64(k + 1))
		case f.CanFloat():
			f.SetFloat(float64(k) + 0.5)
		case f.Kind() == reflect.String:
			f.SetString(v.Type().Field(k).Name)
		case f.Kind() == reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		case f.Kind() == reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		case f.Type().Name() == "Memory":
			fill(f)
		}
	}
}
