// Package pki makes the certificates of the local stack's own HTTPS servers: one authority, and server certificates
// for the loopback address. It serves nothing itself and keeps nothing on disk.
package pki
