// Package storetest is the suite that every store of package store passes, in the words of the contract. What only one of them has (a disk that is full, a
// process that is killed between two writes, several users) is tested beside that one.
package storetest

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/activator/batch/store"
)

// Opener makes an empty store for a test, within limits. What it returns opens it: each call closes what the call before has opened.
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

// Upload keeps a file of an owner.
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

// Read reads a file of an owner.
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

// Batch makes a batch of a's and claims it.
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

// Result is that of a line.
func Result(n int, ok bool) store.Result {
	return store.Result{Line: n, OK: ok, Text: fmt.Appendf(nil, "line %d\n", n), Tokens: store.Tokens{Output: 2}}
}

// Keep keeps a response of a's, created some time ago.
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
