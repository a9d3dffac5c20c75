package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

const patience = 20 * time.Minute

func (b *gpuBench) startUp(ctx context.Context, manifest string, env ...string) (*Up, error) {
	dir, err := os.MkdirTemp(b.dir, "up")
	if err != nil {
		return nil, err
	}
	return StartUp(ctx, UpConfig{Rouse: b.rouse, Dir: dir, Manifest: manifest, Args: []string{"--record-size", "0"}, Env: env, Patience: patience})
}

func (u *Up) firstByte(ctx context.Context, body map[string]any) (time.Duration, error) {
	first, _, err := u.turn(ctx, body)
	return first, err
}

var cachedTokens = regexp.MustCompile(`"cached_tokens":\s*(\d+)`)

// turn also returns how many tokens of the prompt were cached; -1: unknown.
func (u *Up) turn(ctx context.Context, body map[string]any) (first time.Duration, cached int, err error) {
	cached = -1
	began := time.Now()
	at, err := u.Door.First(ctx, pathText, body, func(data string) {
		if m := cachedTokens.FindStringSubmatch(data); m != nil {
			cached, _ = strconv.Atoi(m[1]) // it is digits
		}
	})
	return at.Sub(began), cached, err
}

func (u *Up) sleep(ctx context.Context, name string, level api.Level) (time.Duration, error) {
	only := func(state api.State, level api.Level) func(admin.Function) bool {
		return func(f admin.Function) bool {
			return len(f.Instances) == 1 && f.Instances[0].State == state && f.Instances[0].Level == level
		}
	}
	if err := u.Await(ctx, name, "awake", only(api.Awake, 0)); err != nil {
		return 0, err
	}
	return u.orderQuiet(ctx, name, fmt.Sprintf("sleep?level=%d", level), "asleep", only(api.Asleep, level))
}
