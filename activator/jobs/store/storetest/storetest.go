// Package storetest is the test suite for every implementation of package store. Cases of only one of them (a full
// disk, a process killed between two writes, several users) are tested in its own package.
package storetest

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/activator/jobs/store"
)

// Opener creates an empty store for a test, within limits. The function that it returns opens it: each call closes
// the previous one.
type Opener func(t *testing.T, l store.Limits) (again func() store.Store)

// Run runs the suite.
func Run(t *testing.T, open Opener) {
	for name, test := range map[string]func(*testing.T, Opener){
		"Files": testFiles, "Bodies": testBodies, "Lists": testLists, "Fencing": testFencing, "Cancel": testCancel, "Groups": testGroups, "NoResults": testNoResults,
		"Messages": testMessages, "Later": testLater, "DeletedWhileServed": testDeletedWhileServed, "Watch": testWatch, "Sweep": testSweep, "Limits": testLimits,
		"Responses": testResponses, "ResponseOfClaim": testResponseOfClaim, "Names": testNames,
	} {
		t.Run(name, func(t *testing.T) { test(t, open) })
	}
}

// Upload stores a file of an owner.
func Upload(t *testing.T, s store.Store, owner, text string) store.File {
	t.Helper()
	u, err := s.NewUpload(owner)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(u, text); err != nil {
		t.Fatal(err)
	}
	f, err := u.Commit("in.jsonl", "batch", 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Read returns a file of an owner.
func Read(t *testing.T, s store.Store, owner, id string) string {
	t.Helper()
	body, _, err := s.OpenFile(owner, id)
	if err != nil {
		t.Fatal(err)
	}
	return All(t, body)
}

// All reads a body to its end, and closes it.
func All(t *testing.T, body store.Body) string {
	t.Helper()
	defer body.Close()
	raw, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// Batch creates a batch of the owner a and claims it.
func Batch(t *testing.T, s store.Store, input string) store.Claim {
	t.Helper()
	b, err := s.NewBatch(store.Batch{Owner: "a", Input: input, Endpoint: "/v1/x"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	c, done, err := s.Claim("a", b.ID)
	if err != nil || len(done) != 0 {
		t.Fatalf("claimed with %v done, %v", done, err)
	}
	return c
}

// Result returns a result for a line.
func Result(n int, ok bool) store.Result {
	return store.Result{Line: n, OK: ok, Text: fmt.Appendf(nil, "line %d\n", n), Tokens: store.Tokens{Output: 2}}
}

// Keep stores a response of the owner a, created some time ago.
func Keep(t *testing.T, s store.Store, ago time.Duration, previous string, before ...string) string {
	t.Helper()
	r := store.Response{Owner: "a", Status: store.Completed, Previous: previous}
	r.ID, r.Created = s.NewResponseID()
	r.Created = r.Created.Add(-ago)
	if err := s.KeepResponse(r, before, []byte("asked"), []byte("answered"), nil); err != nil {
		t.Fatal(err)
	}
	return r.ID
}
