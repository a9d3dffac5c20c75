package constrain

// JSONValue is any JSON value.
func JSONValue() Form { return Form{newJSONRules().value} }

// Allows reports whether a mask holds token.
func Allows(mask []uint64, token int32) bool {
	i := int(token) >> 6
	return token >= 0 && i < len(mask) && mask[i]>>(uint(token)&63)&1 != 0
}
