//go:build !linux

package serve

import "errors"

// ExitWithParent needs Linux.
func ExitWithParent() error {
	return errors.New("exit with parent: this needs Linux; leave the flag out and stop the process yourself")
}
