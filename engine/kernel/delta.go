package kernel

// DeltaRule takes one position into the state of a head, [len(k), len(v)], and writes qᵀ·state to out: the gated
// delta rule (arXiv:2412.06464). It changes the state to decay·state + k·dᵀ with d = beta·(v - decay·stateᵀ·k), and v
// to d.
func DeltaRule(state, q, k, v []float32, decay, beta float32, out []float32) {
	n := len(v)
	out = out[:n]
	clear(out)
	for i, x := range k {
		row := state[i*n:][:n]
		Scale(row, decay)
		Axpy(out, x, row)
	}
	for j, x := range out {
		v[j] = float32((v[j] - x) * beta)
	}
	clear(out)
	for i, x := range k {
		row := state[i*n:][:n]
		Axpy(row, x, v)
		Axpy(out, q[i], row)
	}
}

// Convolve writes the sums of each channel's inputs times its weights, [len(out), len(inputs)], to out, which may be
// one of the inputs.
func Convolve(out, weights []float32, inputs [][]float32) {
	n := len(inputs)
	for c := range out {
		sum := float32(0)
		for j, w := range weights[c*n:][:n] {
			sum += float32(w * inputs[j][c])
		}
		out[c] = sum
	}
}

// Sigmoid returns 1/(1+e^-x).
func Sigmoid(x float32) float32 { return 1 / (1 + Exp(-x)) }

// Softplus returns log(1+e^x) with a relative error below 1e-6: with u = e^-|x| the logarithm is 2·artanh(u/(2+u)),
// by its series.
func Softplus(x float32) float32 {
	u := Exp(-max(x, -x))
	z := u / (2 + u)
	s := float32(z * z)
	sum := float32(1.0 / 13)
	for _, c := range [...]float32{1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3, 1} {
		sum = float32(sum*s) + c
	}
	return max(x, 0) + float32(2*float32(z*sum))
}

// SigmoidMul multiplies x by the sigmoid of gate.
func SigmoidMul(x, gate []float32) {
	for i, g := range gate[:len(x)] {
		x[i] = float32(x[i] * Sigmoid(g))
	}
}
