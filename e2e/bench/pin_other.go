//go:build !linux

package main

import "errors"

func pin(...int) (func(), error) { return nil, errors.New("put all on one core: only Linux can") }
