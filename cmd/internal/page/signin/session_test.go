package signin

import (
	"context"
	"crypto/sha256"
	"testing"
	"time"
)

// TestAllSessionsEnding: a session begins while as many as there may be have ended and are not removed yet.
func TestAllSessionsEnding(t *testing.T) {
	var l sessions
	l.init(t.Context())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for k := range maxSessions {
		l.all[sha256.Sum256([]byte{byte(k), byte(k >> 8)})] = &session{ctx: ended, end: cancel}
	}
	if secret := l.begin(who{Subject: "ann"}, time.Hour); l.find(secret) == nil {
		t.Error("the new session is not found")
	}
}
