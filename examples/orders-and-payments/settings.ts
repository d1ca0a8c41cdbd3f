/** A setting from the environment that must be there. */
export function setting(name: string): string {
  const value = process.env[name];
  if (value === undefined || value === "") throw new Error(`Set ${name}; README.md says how`);
  return value;
}
