// Package architecture holds the rules that the code base keeps to, as tests: who may import whom, what pure packages may not
// touch, who reads the environment, and what every package and exported name has to say about itself.
//
// It has no code of its own. A package that is added has to be given its level in the table first.
package architecture
