// A table as a file that a spreadsheet opens without running anything in it.

export type Cell = string | number | boolean | null | undefined;

export interface Table {
  columns: string[];
  rows: Cell[][];
}

function cell(value: Cell): string {
  let text = value === null || value === undefined ? '' : String(value);
  // A text that begins like a formula is one to a spreadsheet.
  if (typeof value === 'string' && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function csv({ columns, rows }: Table): string {
  return [columns, ...rows].map((row) => row.map(cell).join(',')).join('\r\n') + '\r\n';
}

export function saveCsv(name: string, table: Table): void {
  const url = URL.createObjectURL(new Blob([csv(table)], { type: 'text/csv' }));
  const link = document.createElement('a');
  link.href = url;
  link.download = `prism-${name}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
