package kernel

//go:noescape
func scores1(a attendArgs)

//go:noescape
func scores4(a attendArgs)

//go:noescape
func mix1(a attendArgs)

//go:noescape
func mix4(a attendArgs)
