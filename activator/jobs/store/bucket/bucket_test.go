package bucket

import (
	"errors"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/activator/jobs/store/storetest"
	"github.com/rouse-dev/rouse/internal/s3"
	"github.com/rouse-dev/rouse/internal/s3/s3test"
)

// quick returns a configuration with short times.
func quick(service s3.Service, l store.Limits) Config {
	return Config{Service: service, Bucket: "bucket", Prefix: "a/b", Limits: l, Poll: 20 * time.Millisecond, Lease: time.Minute, Survey: 1, Piece: 100_000, Merge: 20_000}
}

func open(t testing.TB, cfg Config) *Store {
	t.Helper()
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestStore runs the tests of package storetest, on a service in memory and on a real one.
func TestStore(t *testing.T) {
	suite := func(serve func(*testing.T) s3.Service) func(*testing.T) {
		return func(t *testing.T) {
			storetest.Run(t, func(t *testing.T, l store.Limits) func() store.Store {
				cfg := quick(serve(t), l)
				var s *Store
				return func() store.Store {
					if s != nil {
						if err := s.Close(); err != nil {
							t.Fatal(err)
						}
					}
					s = open(t, cfg)
					return s
				}
			})
		}
	}
	t.Run("fake", suite(func(t *testing.T) s3.Service { return s3test.Serve(t, s3test.NewFake()) }))
	t.Run("gateway", suite(func(t *testing.T) s3.Service { return s3test.Gateway(t) }))
}

// TestNotAStore: Open detects a bucket that can't be used.
func TestNotAStore(t *testing.T) {
	ignoring, refusing := s3test.NewFake(), s3test.NewFake()
	ignoring.IgnoreConditions, refusing.RefuseConditions = true, true
	for _, f := range []*s3test.Fake{ignoring, refusing} {
		if _, err := Open(quick(s3test.Serve(t, f), store.Limits{})); !errors.Is(err, errConditions) {
			t.Errorf("a service without conditions: %v", err)
		}
		if keys := f.Keys(); len(keys) != 0 {
			t.Errorf("the objects %v are left", keys)
		}
	}
}

// TestParseURL: a bucket and a prefix of keys, and nothing that would lead elsewhere.
func TestParseURL(t *testing.T) {
	for at, want := range map[string][2]string{"s3://abc": {"abc", ""}, "s3://abc/": {"abc", ""}, "s3://a.b-c/x/y_z/": {"a.b-c", "x/y_z"}} {
		if name, prefix, err := ParseURL(at); err != nil || name != want[0] || prefix != want[1] {
			t.Errorf("%s: %q, %q, %v", at, name, prefix, err)
		}
	}
	for _, at := range []string{"", "s3:", "s3://", "s3://ab", "s3://abc/../x", "s3://abc//x", "s3://abc/ü", "s3://key:secret@abc", "S3://abc", "s3://abc?x=y", "/folder"} {
		if name, prefix, err := ParseURL(at); err == nil {
			t.Errorf("%s is taken, as %q, %q", at, name, prefix)
		}
	}
}
